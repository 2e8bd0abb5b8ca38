/* SPDX-License-Identifier: MIT */
/*
 * park.c - what does it cost a host's thread to take part in releases?
 *
 * Park begin and park end around nothing, while no pass is under way.  Prints `name value
 * unit`: both together, and what an empty loop around the clock takes, which begin reads.
 */
#include <stdio.h>

#include "idlesched.h"
#include "usage.h"

#define TURNS_COUNT 10000000

static const struct bench_usage usage = {
  .question = "what does it cost a host's thread to take part in releases?",
  .reading =
    "  park_begin_and_end is the price; park_without_clock the part of it that is not the\n"
    "  clock's, which begin reads.\n",
};

static double each_ns(uint64_t began_ns) {
  return (double)(idlesched_now_ns() - began_ns) / TURNS_COUNT;
}

int main(int argc, char **argv) {
  (void)argc;
  (void)bench_usage_parse(&usage, argv);
  idlesched_thread self;
  volatile uint64_t moment_ns = 0;
  uint64_t began_ns = idlesched_now_ns();
  for (unsigned i = 0; i < TURNS_COUNT; i++)
    moment_ns = idlesched_now_ns();
  double clock_ns = each_ns(began_ns);
  (void)moment_ns;

  idlesched_thread_enter(&self);
  began_ns = idlesched_now_ns();
  for (unsigned i = 0; i < TURNS_COUNT; i++) {
    idlesched_thread_park_begin(&self);
    idlesched_thread_park_end(&self);
  }
  double park_ns = each_ns(began_ns);
  idlesched_thread_leave(&self);

  printf("read_clock %.1f ns\n", clock_ns);
  printf("park_begin_and_end %.1f ns\n", park_ns);
  printf("park_without_clock %.1f ns\n", park_ns - clock_ns);
  return 0;
}
