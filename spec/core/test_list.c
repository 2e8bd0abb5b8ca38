/* SPDX-License-Identifier: MIT */
/*
 * test_list.c - links inside objects: order, leaving twice, and being on one list only.
 */
#include "list.h"

#include "harness.h"

struct item {
  int number;
  struct ids_list link;
};

static int number_of(const struct ids_list *link) {
  return link == NULL ? -1 : ids_container_of(link, const struct item, link)->number;
}

static void items_init(struct item *items, int count) {
  for (int i = 0; i < count; i++) {
    items[i].number = i;
    ids_list_init(&items[i].link);
  }
}

SPEC(a_list_keeps_the_order, "list: the front and the back are where they should be") {
  struct ids_list list;
  struct item items[3];
  ids_list_init(&list);
  items_init(items, 3);
  CHECK_EQ_INT(number_of(ids_list_first(&list)), -1);
  ids_list_push_back(&list, &items[0].link);
  ids_list_push_back(&list, &items[1].link);
  ids_list_push_front(&list, &items[2].link);
  static const int order[] = { 2, 0, 1 };
  for (int i = 0; i < 3; i++) {
    struct ids_list *first = ids_list_first(&list);
    CHECK_EQ_INT(number_of(first), order[i]);
    ids_list_leave(first);
  }
  CHECK(ids_list_is_empty(&list));
}

SPEC(leaving_twice_is_harmless, "list: leaving twice is harmless, from the middle as well") {
  struct ids_list list;
  struct item items[3];
  ids_list_init(&list);
  items_init(items, 3);
  for (int i = 0; i < 3; i++)
    ids_list_push_back(&list, &items[i].link);
  ids_list_leave(&items[1].link);
  ids_list_leave(&items[1].link);
  CHECK(ids_list_is_empty(&items[1].link));
  CHECK_EQ_INT(number_of(list.next), 0);
  CHECK_EQ_INT(number_of(list.next->next), 2);
  CHECK_EQ_PTR(list.next->next->next, &list);
}

SPEC(on_two_lists_aborts, "list: being put on a second list is an assertion",
     .aborts_with = "ids_list_is_empty(node)") {
  struct ids_list list, other;
  struct item item;
  ids_list_init(&list);
  ids_list_init(&other);
  items_init(&item, 1);
  ids_list_push_back(&list, &item.link);
  ids_list_push_back(&other, &item.link);
}
