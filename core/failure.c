/* SPDX-License-Identifier: MIT */
/*
 * failure.c - see failure.h.
 *
 * The line is put together by hand: the core has no stdio, and a program that is
 * broken should not need it.
 */
#include "failure.h"

#include <string.h>

/* Not guarded: set before other threads use the library, as its documentation asks. */
static idlesched_failure_handler *handler;

idlesched_failure_handler *ids_failure_set_handler(idlesched_failure_handler *new_handler) {
  idlesched_failure_handler *before = handler;
  handler = new_handler;
  return before;
}

struct line {
  char text[512];
  size_t length;
};

static void add_text(struct line *self, const char *text) {
  size_t room = sizeof self->text - 1 - self->length;
  size_t length = strlen(text);
  if (length > room)
    length = room;
  memcpy(self->text + self->length, text, length);
  self->length += length;
  self->text[self->length] = '\0';
}

static void add_number(struct line *self, uint64_t number) {
  char digits[21];
  char *first = digits + sizeof digits - 1;
  *first = '\0';
  do {
    *--first = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  add_text(self, first);
}

IDS_NORETURN static void fail(const idlesched_failure *failure) {
  if (handler != NULL)
    handler(failure);
  struct line line = { .length = 0 };
  add_text(&line, "idlesched: assertion failed: ");
  add_text(&line, failure->expression);
  if (failure->has_numbers) {
    add_text(&line, ": ");
    add_number(&line, failure->left);
    add_text(&line, " against ");
    add_number(&line, failure->right);
  }
  add_text(&line, " (");
  add_text(&line, failure->file);
  add_text(&line, ":");
  add_number(&line, (uint64_t)failure->line);
  add_text(&line, ")");
  ids_die(line.text);
}

IDS_NORETURN void ids_fatal(const char *expression, const char *file, int line) {
  fail(&(idlesched_failure){ .expression = expression, .file = file, .line = line });
}

IDS_NORETURN void ids_fatal_numbers(const char *expression, uint64_t left, uint64_t right,
                                    const char *file, int line) {
  fail(&(idlesched_failure){ .expression = expression,
                             .file = file,
                             .line = line,
                             .has_numbers = true,
                             .left = left,
                             .right = right });
}
