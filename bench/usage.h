/* SPDX-License-Identifier: MIT */
/*
 * usage.h - what a bench without arms is called with: --help, and at most one number.
 * (Those with arms: compare.h.)
 */
#ifndef BENCH_USAGE_H
#define BENCH_USAGE_H

struct bench_usage {
  const char *question;
  const char *argument; /* "PAIRS"; NULL: it takes none */
  const char *what;     /* that argument is */
  unsigned usual;       /* without it */
  const char *reading;  /* what to look at, in lines */
};

/* The argument's number, or the usual one.  Ends the program after --help, and when an argument
 * is wrong, which it says. */
unsigned bench_usage_parse(const struct bench_usage *self, char **arguments);

#endif
