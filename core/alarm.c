/* SPDX-License-Identifier: MIT */
/*
 * alarm.c - see alarm.h.
 *
 * Each node leads a tree of those that come after it.  Its children are a list, in which
 * `previous` of the first one is the parent.
 */
#include "alarm.h"

static bool is_before(const idlesched_alarm *left, const idlesched_alarm *right) {
  return left->at_ns_ != right->at_ns_ ? left->at_ns_ < right->at_ns_
                                       : left->number_ < right->number_;
}

static void swap(idlesched_alarm **left, idlesched_alarm **right) {
  idlesched_alarm *held = *left;
  *left = *right;
  *right = held;
}

/* One tree out of two; the later root becomes the first child of the other. */
static idlesched_alarm *meld(idlesched_alarm *root, idlesched_alarm *child) {
  if (is_before(child, root))
    swap(&root, &child);
  child->previous_ = root;
  child->next_ = root->child_;
  if (child->next_ != NULL)
    child->next_->previous_ = child;
  root->child_ = child;
  root->next_ = NULL;
  root->previous_ = NULL;
  return root;
}

/* One tree out of a list of them, or NULL: in pairs from the left, and these from the
 * right, which is what keeps the trees flat. */
static idlesched_alarm *meld_all(idlesched_alarm *list) {
  idlesched_alarm *pairs = NULL; /* the last one first */
  while (list != NULL) {
    idlesched_alarm *left = list, *right = list->next_;
    list = right == NULL ? NULL : right->next_;
    if (right != NULL)
      left = meld(left, right);
    left->next_ = pairs;
    pairs = left;
  }
  idlesched_alarm *root = pairs;
  if (root == NULL)
    return NULL;
  for (pairs = root->next_; pairs != NULL;) {
    idlesched_alarm *pair = pairs;
    pairs = pair->next_;
    root = meld(root, pair);
  }
  root->next_ = NULL;
  root->previous_ = NULL;
  return root;
}

uint64_t ids_alarms_at_ns(const struct ids_alarms *self) {
  return self->first == NULL ? IDS_NEVER : self->first->at_ns_;
}

void ids_alarms_insert(struct ids_alarms *self, idlesched_alarm *alarm, uint64_t at_ns) {
  *alarm = (idlesched_alarm){ .at_ns_ = at_ns, .number_ = self->inserted_count++ };
  self->first = self->first == NULL ? alarm : meld(self->first, alarm);
}

void ids_alarms_remove(struct ids_alarms *self, idlesched_alarm *alarm) {
  ids_assert(self->first != NULL);
  idlesched_alarm *rest = meld_all(alarm->child_);
  if (alarm == self->first) {
    self->first = rest;
    return;
  }
  idlesched_alarm *previous = alarm->previous_;
  ids_assert(previous != NULL);
  if (previous->child_ == alarm)
    previous->child_ = alarm->next_;
  else
    previous->next_ = alarm->next_;
  if (alarm->next_ != NULL)
    alarm->next_->previous_ = previous;
  if (rest != NULL)
    self->first = meld(self->first, rest);
}

idlesched_alarm *ids_alarm_next(const idlesched_alarm *alarm) {
  if (alarm->child_ != NULL)
    return alarm->child_;
  for (;;) {
    if (alarm->next_ != NULL)
      return alarm->next_;
    const idlesched_alarm *previous = alarm->previous_;
    for (; previous != NULL && previous->child_ != alarm; previous = alarm->previous_)
      alarm = previous;
    if (previous == NULL)
      return NULL;
    alarm = previous;
  }
}
