/* SPDX-License-Identifier: MIT */
/*
 * compare.h - remedies against one another: cells that take turns, and tables of them.
 *
 * A bench has arms, one for each remedy.  A cell is one arm, once, in a process of its own:
 * this program again with `--cell ARM` behind the arguments that it was given.  So a cell
 * can be run by hand as well, under strace for one.
 *
 * The arms take turns, every other time in reverse order.  A table shows mean and standard
 * deviation of each value; a second one the same of the differences to the first arm, run
 * by run: what the machine did meanwhile mostly cancels out in those.
 */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_ARMS_MAX 12
#define BENCH_COLUMNS_MAX 40
#define BENCH_RUNS_MAX 100
#define BENCH_LIST_MAX 16

struct bench_arm {
  const char *name;
  const char *what; /* for --help */
  /* "NAME=value" for the cell's process: what the allocator reads at its start. */
  const char *environment[3];
  bool needs_mimalloc;
};

/* A value that cells tell, one line of the tables. */
struct bench_column {
  const char *name; /* with its unit at the end */
  unsigned digits;  /* behind the point */
};

struct bench_list {
  unsigned count, of[BENCH_LIST_MAX];
};

/* An option with a number, or with a list of them: one of the two pointers is set. */
struct bench_option {
  const char *name, *what;   /* "--runs", and for --help */
  const char *usual, *quick; /* as they would be given; with --quick, the second */
  unsigned least, most;
  unsigned *number;
  struct bench_list *list;
};

/* A cell's process, as the one sees it that has started it. */
struct bench_child {
  pid_t process_id;
  int output;     /* what it tells */
  char text[512]; /* what has come of it, from after the line that was read last */
  unsigned length;
};

struct bench {
  const char *question; /* for --help */
  const char *reading;  /* what to look at, for --help */
  const struct bench_arm *arms;
  unsigned arms_count;
  const struct bench_column *columns;
  unsigned columns_count;
  const struct bench_option *options; /* besides those that all benches have */
  unsigned options_count;
  const char *usual_runs;
  bool has_charge; /* cells read bench_charged_mib() */
  /*
   * Read what the cell tells until it ends, into the columns, which are all NAN before.
   * NULL: each line has the name of a column.
   */
  void (*watch)(struct bench *bench, struct bench_child *child, double *values);

  /* Set by bench_parse(). */
  int cell; /* the arm that this process is to run; -1: none, it compares */
  unsigned runs_count;
  bool is_chosen[BENCH_ARMS_MAX];
  /* The rest is compare.c's. */
  char **arguments;
  const char *lines_path;
  double values[BENCH_ARMS_MAX][BENCH_RUNS_MAX][BENCH_COLUMNS_MAX];
};

/* Ends the program after --help, and when an argument is wrong, which it says.  Allocates
 * nothing: it may be called before the allocator's settings are made. */
void bench_parse(struct bench *bench, char **arguments);

/*
 * Run the cells of all chosen arms, and print their tables.  group says which cells these
 * are, as "workers=4", and is in each line of --lines.  More arguments for the cells, up to
 * a NULL, go behind those of this program.
 */
void bench_compare(struct bench *bench, const char *group, const char *const *more);

/*
 * The same once with and once without huge pages, or as the list says, as 1 and 0: a number
 * that the cells get as their --huge.
 */
void bench_compare_huge(struct bench *bench, const struct bench_list *huge);

/* The mean over the runs of the last compare; NAN when there is none. */
double bench_mean(const struct bench *bench, unsigned arm, const char *column);
/* Print one number in the place of an arm, as the tables do. */
void bench_print_label(const char *label);
void bench_print_number(double mean, double deviation, unsigned digits);
void bench_print_arms(const struct bench *bench);

/* Set the column of this name, if there is one. */
void bench_set(const struct bench *bench, double *values, const char *name, double value);

/*
 * The next line of what the cell tells.  1: name (of 64 bytes) and value are set; 0: there
 * is none yet at deadline_ns, on the clock of idlesched_now_ns(); -1: the cell has ended.
 */
int bench_child_read(struct bench_child *child, uint64_t deadline_ns, char *name, double *value);

#endif
