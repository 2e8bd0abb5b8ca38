/* SPDX-License-Identifier: MIT */
/*
 * submit.c - what does it cost to have a job run that does nothing?
 *
 * One producer, plain jobs, from the first submit until the pool is idle; and the
 * same with embedded jobs, and one job at a time.  Prints `name value unit`.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "idlesched.h"
#include "usage.h"

#define JOBS_COUNT 1000000
#define TURNS_COUNT 20000

static const struct bench_usage usage = {
  .question = "what does it cost to have a job run that does nothing?",
  .reading =
    "  For each job, by number of workers.  plain_job and embedded_job: a million of them from\n"
    "  one producer, from the first submit until the pool is idle.  submit_and_wait: one at a\n"
    "  time.\n",
};

static void nothing(void *context) {
  (void)context;
}

static int embedded_nothing(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  return 0;
}

static void must(int status, const char *call) {
  if (status == 0)
    return;
  fprintf(stderr, "%s: %s\n", call, idlesched_strerror(status));
  exit(EXIT_FAILURE);
}
#define MUST(call) must(call, #call)

static void print_each(const char *name, unsigned workers, uint64_t began_ns, unsigned count) {
  double each_ns = (double)(idlesched_now_ns() - began_ns) / count;
  printf("%s_%u_workers %.0f ns\n", name, workers, each_ns);
}

static void plain_jobs(idlesched_pool *pool, unsigned workers) {
  uint64_t began_ns = idlesched_now_ns();
  for (unsigned i = 0; i < JOBS_COUNT; i++)
    MUST(idlesched_pool_submit(pool, nothing, NULL));
  MUST(idlesched_pool_wait(pool, IDLESCHED_NEVER));
  print_each("plain_job", workers, began_ns, JOBS_COUNT);
}

static void embedded_jobs(idlesched_pool *pool, unsigned workers) {
  idlesched_job *jobs = calloc(JOBS_COUNT, sizeof *jobs);
  must(jobs == NULL ? -ENOMEM : 0, "calloc");
  uint64_t began_ns = idlesched_now_ns();
  for (unsigned i = 0; i < JOBS_COUNT; i++) {
    jobs[i].run = embedded_nothing;
    MUST(idlesched_pool_submit_job(pool, &jobs[i]));
  }
  MUST(idlesched_pool_wait(pool, IDLESCHED_NEVER));
  print_each("embedded_job", workers, began_ns, JOBS_COUNT);
  free(jobs);
}

static void turns(idlesched_pool *pool, unsigned workers) {
  uint64_t began_ns = idlesched_now_ns();
  for (unsigned i = 0; i < TURNS_COUNT; i++) {
    idlesched_job job = { .run = embedded_nothing };
    MUST(idlesched_pool_submit_job(pool, &job));
    MUST(idlesched_job_wait(&job, IDLESCHED_NEVER));
  }
  print_each("submit_and_wait", workers, began_ns, TURNS_COUNT);
}

int main(int argc, char **argv) {
  (void)argc;
  (void)bench_usage_parse(&usage, argv);
  static const unsigned workers_counts[] = { 1, 2, 8 };
  for (unsigned i = 0; i < 3; i++) {
    idlesched_pool *pool;
    MUST(
      idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = workers_counts[i] }));
    plain_jobs(pool, workers_counts[i]);
    embedded_jobs(pool, workers_counts[i]);
    turns(pool, workers_counts[i]);
    idlesched_pool_destroy(pool);
  }
  return EXIT_SUCCESS;
}
