/* SPDX-License-Identifier: MIT */
/*
 * cell.h - what the queue is made of, and what a worker holds while it runs it.
 */
#ifndef IDS_CELL_H
#define IDS_CELL_H

/* A job: a function with its argument, or, without a function, an idlesched_job. */
struct ids_cell {
  void (*run)(void *context);
  void *context;
};

#endif
