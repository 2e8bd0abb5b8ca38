/* SPDX-License-Identifier: MIT */
/*
 * usage.c - see usage.h.
 */
#include "usage.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MOST 1000000

static void print_help(const struct bench_usage *self) {
  printf("%s - %s\n\nusage: %s", program_invocation_short_name, self->question,
         program_invocation_short_name);
  if (self->argument != NULL)
    printf(" [%s]\n\n  %-12s %s\n%15sdefault %u", self->argument, self->argument, self->what, "",
           self->usual);
  printf("\n\nReading\n%s", self->reading);
}

/* As in measure.c, which is of benches with arms. */
__attribute__((format(printf, 1, 2))) static _Noreturn void fail(const char *format, ...) {
  fprintf(stderr, "%s: ", program_invocation_short_name);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(EXIT_FAILURE);
}

static unsigned parse_number(const struct bench_usage *self, const char *text) {
  char *end;
  errno = 0;
  unsigned long number = strtoul(text, &end, 10);
  bool is_number = *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
  if (!is_number || number < 1 || number > NUMBER_MOST)
    fail("%s is '%s'; expected a number from 1 to %d", self->argument, text, NUMBER_MOST);
  return (unsigned)number;
}

unsigned bench_usage_parse(const struct bench_usage *self, char **arguments) {
  unsigned most = self->argument != NULL ? 1 : 0, count = 0;
  for (char **argument = arguments + 1; *argument != NULL; argument++, count++) {
    if (strcmp(*argument, "--help") == 0) {
      print_help(self);
      exit(EXIT_SUCCESS);
    }
    if (count >= most || **argument == '-')
      fail("there is no place for '%s'; --help says what it takes", *argument);
  }
  return count > 0 ? parse_number(self, arguments[1]) : self->usual;
}
