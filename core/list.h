/* SPDX-License-Identifier: MIT */
/*
 * list.h - a doubly linked list whose links live inside the objects.
 *
 * A list is a ring through its head.  A node that is on no list points to
 * itself, so leaving twice is harmless and "is it on a list?" has an answer.
 */
#ifndef IDS_LIST_H
#define IDS_LIST_H

#include "base.h"

struct ids_list {
  struct ids_list *next;
  struct ids_list *previous;
};

static inline void ids_list_init(struct ids_list *self) {
  self->next = self;
  self->previous = self;
}

static inline bool ids_list_is_empty(const struct ids_list *self) {
  return self->next == self;
}

static inline void ids_list_insert_after(struct ids_list *place, struct ids_list *node) {
  ids_assert(ids_list_is_empty(node));
  node->next = place->next;
  node->previous = place;
  place->next->previous = node;
  place->next = node;
}

static inline void ids_list_push_front(struct ids_list *self, struct ids_list *node) {
  ids_list_insert_after(self, node);
}

static inline void ids_list_push_back(struct ids_list *self, struct ids_list *node) {
  ids_list_insert_after(self->previous, node);
}

static inline void ids_list_leave(struct ids_list *node) {
  node->next->previous = node->previous;
  node->previous->next = node->next;
  ids_list_init(node);
}

/* NULL when the list is empty. */
static inline struct ids_list *ids_list_first(const struct ids_list *self) {
  return ids_list_is_empty(self) ? NULL : self->next;
}

/* NULL when the list is empty. */
static inline struct ids_list *ids_list_last(const struct ids_list *self) {
  return ids_list_is_empty(self) ? NULL : self->previous;
}

#endif
