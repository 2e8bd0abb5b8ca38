/* SPDX-License-Identifier: MIT */
/*
 * pool_sim.h - what scenarios of pools share: a pool in one line, clients, jobs that leave
 * a trace, and the checks that every run ends with.
 *
 *   static void scenario(void *context) {
 *     idlesched_pool *pool = SIM_POOL(.workers_max = 2);
 *     struct sim_client client;
 *     sim_client_start(&client, submit_one, pool);
 *     sim_client_join(&client);
 *     sim_pool_finish(pool);
 *   }
 */
#ifndef IDLESCHED_SPEC_POOL_SIM_H
#define IDLESCHED_SPEC_POOL_SIM_H

#include "harness.h"
#include "idlesched.h"
#include "plat.h"
#include "pool.h"
#include "sim_spec.h"

/*
 * Make a pool, or fail the run.  From here on it is watched: at rest there is no work that a
 * worker could take, nobody sleeps on a ticket, and somebody parked wakes up for the next
 * pass, and for the next alarm; and the traces of jobs are cleared.
 */
#define SIM_POOL(...) sim_pool_create(&(const idlesched_pool_config){ __VA_ARGS__ })
idlesched_pool *sim_pool_create(const idlesched_pool_config *config);
/* The same where it may be refused: then NULL. */
idlesched_pool *sim_pool_try_create(const idlesched_pool_config *config);

/* Watch it no more: it is about to be destroyed otherwise than by sim_pool_finish(). */
void sim_pool_unwatch(const idlesched_pool *pool);

/* Look at the ledger, now: every wake is one poll, and what else must add up. */
void sim_pool_check(idlesched_pool *pool);
/* Wait until the pool is idle, check that every submitted job ran exactly once, check the
 * ledger, destroy the pool. */
void sim_pool_finish(idlesched_pool *pool);

idlesched_pool_stats sim_stats(idlesched_pool *pool);
struct ids_worker *sim_worker(idlesched_pool *pool, unsigned index);
/* Threads of pools that do not say otherwise by a name: not yet ended, whatever the pool
 * says. */
unsigned sim_pool_threads_count(void);

/* The worker's heap, or NULL. */
void *sim_worker_heap(idlesched_pool *pool, unsigned index);

/* Sleep until so many workers are parked. */
void sim_await_parked(idlesched_pool *pool, unsigned count);
/* Fair clock: whoever can run does so, and all workers that have a thread are parked then.
 * When the first one parked. */
uint64_t sim_settle(idlesched_pool *pool);

/* It is closed, to the last thread, and takes nothing more. */
void sim_check_closed(idlesched_pool *pool);

/* ---- the machine ---- */

/* To collect, to abandon and to purge takes so long each. */
void sim_heap_takes(uint64_t duration_ns);
/* Steps that the machine makes while the caller sleeps for so long. */
uint64_t sim_steps_of_sleep(uint64_t duration_ns);

/* ---- searches ---- */

/* All schedules within the bound, on both clocks; then runs_count at a full gate, most of
 * them random on the hostile clock, the others random on the fair one, by priorities, and
 * with a wait that ends for no reason. */
void sim_pool_searches(const struct sim_plan *plan, unsigned bound, uint64_t runs_count);
/* The second half of it, where the first is too much. */
void sim_pool_samples(const struct sim_plan *plan, uint64_t runs_count);

/* ---- threads of the scenario ---- */

struct sim_client {
  struct ids_thread thread;
  void (*main)(void *context);
  void *context;
};
void sim_client_start(struct sim_client *self, void (*main)(void *context), void *context);
void sim_client_join(struct sim_client *self);

/* ---- workers that the host keeps something for ---- */

/* In what follows, workers up to this index have a state, which takes so many steps to
 * collect.  A release that was cut short leaves the rest of them for the next one. */
void sim_states(unsigned workers_count, unsigned steps_count, uint64_t step_ns);
extern const idlesched_worker_hooks sim_state_hooks;
/* Steps made so far, and threads stopped. */
unsigned sim_state_steps(unsigned worker);
unsigned sim_state_stops(unsigned worker);

/* ---- what happens at the step of a sweep ---- */

/* Let a thread of its own do this at step sim_sweep_step() of the run, unless the end came
 * before; the end waits for it.  A pool that it uses may be destroyed after that. */
void sim_sweep_begin(void (*function)(void *context), void *context);
void sim_sweep_end(void);

/* ---- jobs that leave a trace ---- */

#define SIM_JOBS_MAX 64

/* Job number i: how often it ran and was dropped, and when. */
struct sim_trace {
  unsigned submits_count, runs_count, drops_count;
  uint64_t submitted_at_ns, started_at_ns;
  uint64_t due_at_ns, expires_at_ns; /* 0: at once, never */
  unsigned began;                    /* how many jobs of the run had begun, this one included */
  unsigned worker;                   /* index of the one that ran it last */
  uintptr_t thread;                  /* number of the thread that did */
  bool is_waitable;                  /* submitted as `job` */
  unsigned dones_count;              /* how often its done callback was called */
  idlesched_job job;
};
extern struct sim_trace sim_jobs[SIM_JOBS_MAX];

/* Submit plain job number i.  What the submit returned; a failed one must leave no trace. */
int sim_submit(idlesched_pool *pool, unsigned i);
/* The same with a ticket for this worker, which is wakeable, and not for the one that is
 * wanted most. */
void sim_submit_to(idlesched_pool *pool, unsigned i, struct ids_worker *worker);
/* The same, and it must succeed. */
void sim_must_submit(idlesched_pool *pool, unsigned i);
/* Then wait until the pool is idle. */
void sim_work(idlesched_pool *pool, unsigned i);
/* Submit number i as a job that can be waited for, with a done callback. */
int sim_submit_waitable(idlesched_pool *pool, unsigned i);
/* The same with the priority, the token, the delay and the expiry of this one. */
int sim_submit_like(idlesched_pool *pool, unsigned i, const idlesched_job *like);
/* Submit it once more, as it is: it may be under way. */
int sim_submit_again(idlesched_pool *pool, unsigned i);
/* The same for one that is to begin so much later, and no later than that; 0 for neither. */
int sim_submit_timed(idlesched_pool *pool, unsigned i, uint64_t delay_ns, uint64_t expire_ns);
/* Called on the worker when a job begins, and at the end of the done callback of one that can
 * be waited for; NULL for neither, as at the begin of each run. */
void sim_jobs_tell(void (*begins)(struct sim_trace *job), void (*is_done)(struct sim_trace *job));
/* Jobs take so long, in virtual time; 0 at the begin of each run. */
void sim_jobs_take(uint64_t duration_ns);
/* The dropped callback of a pool's configuration that notes it. */
void sim_job_dropped(void (*run)(void *context), void *context);

/* Every job that was submitted ran or was dropped, once each, and who asked for it was told
 * so once. */
void sim_check_jobs_ended(void);
/* Fair clock, and nothing that takes time: each job started when it was submitted, or at its
 * moment, and those that never did had expired by then. */
void sim_check_jobs_started_at_once(void);

#endif
