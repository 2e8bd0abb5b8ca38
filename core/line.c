/* SPDX-License-Identifier: MIT */
/*
 * line.c - see line.h.
 */
#include "line.h"

struct place {
  struct ids_list list; /* L */
  const void *wish;     /* C */
  bool is_served;       /* L  and not in line any more */
  int result;           /* L  what the wait returns then */
  struct ids_cond served;
};

static struct place *first_of(const struct ids_line *self) {
  ids_assert(!ids_line_is_empty(self));
  return ids_container_of(ids_list_first(&self->places), struct place, list);
}

void ids_line_init(struct ids_line *self) {
  ids_list_init(&self->places);
}

bool ids_line_is_empty(const struct ids_line *self) {
  return ids_list_is_empty(&self->places);
}

int ids_line_wait_locked(struct ids_line *self, const void *wish, struct ids_mutex *lock,
                         uint64_t deadline_ns) {
  struct place place = { .wish = wish };
  int status = ids_cond_init(&place.served, "line.place");
  if (status != 0)
    return status;
  ids_list_init(&place.list);
  ids_list_push_back(&self->places, &place.list);
  while (!place.is_served && ids_now_ns() < deadline_ns)
    ids_cond_wait(&place.served, lock, deadline_ns);
  if (!place.is_served) {
    ids_list_leave(&place.list);
    place.result = -ETIMEDOUT;
  }
  ids_cond_deinit(&place.served);
  return place.result;
}

const void *ids_line_first_wish_locked(const struct ids_line *self) {
  return first_of(self)->wish;
}

void ids_line_serve_first_locked(struct ids_line *self, int result) {
  struct place *place = first_of(self);
  ids_list_leave(&place->list);
  place->is_served = true;
  place->result = result;
  ids_cond_signal(&place->served);
}

void ids_line_serve_all_locked(struct ids_line *self, int result) {
  while (!ids_line_is_empty(self))
    ids_line_serve_first_locked(self, result);
}
