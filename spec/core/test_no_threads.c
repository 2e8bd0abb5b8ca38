/* SPDX-License-Identifier: MIT */
/*
 * test_no_threads.c - the system itself refuses threads: a limit on the processes of a user, or
 * on the tasks of a cgroup.  What the submit says is so, nothing that was taken in is stranded,
 * and when the limit is lifted the pool goes on as if nothing had been.
 * (Each order of things, with refusals injected: test_refused.c, test_sim_refuse.c.)
 *
 * What is limited runs in a process of its own, which tells the line of the first check that
 * failed there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_kit.h"

enum { WORKERS = 4, JOBS = 200 };

/* How a limit is set: to so many threads besides those that there are, or to none. */
struct limiter {
  const char *what;
  /* 0, or an errno value: it cannot be done here. */
  int (*begin)(void);
  int (*set)(unsigned more_count);
  int (*lift)(void);
  /* In the parent, when that process is no more. */
  void (*end)(pid_t child);
};

static int failed_line;
#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition) && failed_line == 0)                                                          \
      failed_line = __LINE__;                                                                      \
  } while (0)

/* ------------------------------------------------------ what happens under a limit */

/* It has no worker, and gets none: the submit says so, and keeps nothing. */
static void live_without_a_thread(const struct limiter *limiter) {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = NULL;
  EXPECT(limiter->set(0) == 0);
  EXPECT(idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = WORKERS }) == 0);
  for (unsigned i = 0; i < JOBS; i++)
    EXPECT(idlesched_pool_submit(pool, count_up, &count) == -EAGAIN);
  EXPECT(idlesched_pool_start_workers(pool, WORKERS) == -EAGAIN);
  idlesched_pool_stats stats = stats_of(pool);
  EXPECT(stats.jobs_submitted == 0 && stats.threads == 0 && stats.starts == 0);
  EXPECT(stats.starts_refused == JOBS + 1 && stats.wakes == stats.tickets_lost);
  EXPECT(idlesched_pool_wait(pool, 0) == 0);
  EXPECT(idlesched_pool_audit(pool, NULL) == 0);

  EXPECT(limiter->lift() == 0);
  for (unsigned i = 0; i < JOBS; i++)
    EXPECT(idlesched_pool_submit(pool, count_up, &count) == 0);
  EXPECT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS) == 0);
  EXPECT(count == JOBS);
  idlesched_pool_destroy(pool);
}

/* There is room for one worker of four: all jobs wait for that one, and run. */
static void live_with_one_thread(const struct limiter *limiter) {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = NULL;
  EXPECT(limiter->set(1) == 0);
  EXPECT(
    idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = WORKERS,
                                                           .idle_exit_ns = IDLESCHED_NEVER }) == 0);
  EXPECT(idlesched_pool_submit(pool, door_pass, &door) == 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  for (unsigned i = 0; i < JOBS; i++)
    EXPECT(idlesched_pool_submit(pool, count_up, &count) == 0);
  idlesched_pool_stats stats = stats_of(pool);
  EXPECT(stats.threads == 1 && stats.jobs_queued == JOBS && stats.starts_refused > 0);
  EXPECT(idlesched_pool_start_workers(pool, WORKERS) == -EAGAIN);
  EXPECT(idlesched_pool_audit(pool, NULL) == 0);
  door_open(&door);
  EXPECT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS) == 0);
  EXPECT(count == JOBS);
  EXPECT(stats_of(pool).starts == 1);

  EXPECT(limiter->lift() == 0);
  EXPECT(idlesched_pool_start_workers(pool, WORKERS) == 0);
  EXPECT(stats_of(pool).threads == WORKERS);
  EXPECT(idlesched_pool_submit(pool, count_up, &count) == 0);
  EXPECT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS) == 0);
  EXPECT(count == JOBS + 1);
  idlesched_pool_destroy(pool);
}

/* One thread, which retires after each job: none of them is lost, whoever runs it. */
static void live_with_successors(const struct limiter *limiter) {
  _Atomic unsigned count = 0;
  unsigned taken_count = 0;
  idlesched_pool *pool = NULL;
  EXPECT(limiter->set(1) == 0);
  EXPECT(idlesched_pool_create(
           &pool, &(idlesched_pool_config){ .workers_max = WORKERS, .is_dedicated = true }) == 0);
  for (unsigned i = 0; i < JOBS; i++) {
    int status = idlesched_pool_submit(pool, count_up, &count);
    EXPECT(status == 0 || status == -EAGAIN);
    taken_count += status == 0;
  }
  EXPECT(taken_count > 0);
  EXPECT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS) == 0);
  EXPECT(count == taken_count);
  EXPECT(stats_of(pool).jobs_submitted == taken_count);
  EXPECT(idlesched_pool_audit(pool, NULL) == 0);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  EXPECT(limiter->lift() == 0);
  EXPECT(idlesched_pool_submit(pool, count_up, &count) == 0);
  EXPECT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS) == 0);
  idlesched_pool_destroy(pool);
}

/* A release needs no thread, and says so of the watcher, which does. */
static void release_and_watch(const struct limiter *limiter) {
  EXPECT(limiter->set(0) == 0);
  EXPECT(idlesched_release(0, NULL) == 0);
  int status = idlesched_pressure_start(NULL);
  EXPECT(status < 0);
  EXPECT(limiter->lift() == 0);
}

static void (*const lives[])(const struct limiter *limiter) = {
  live_without_a_thread,
  live_with_one_thread,
  live_with_successors,
  release_and_watch,
};

struct outcome {
  int cannot_status, failed_line;
};

/* A process for each, as what it gives up cannot be had again, and a thread that has just been
 * joined may count for a moment still. */
static struct outcome live_limited(const struct limiter *limiter,
                                   void (*live)(const struct limiter *limiter)) {
  struct outcome outcome = { 0 };
  int pipe_ends[2], status;
  REQUIRE_EQ_INT(pipe(pipe_ends), 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    outcome.cannot_status = limiter->begin();
    if (outcome.cannot_status == 0)
      live(limiter);
    outcome.failed_line = failed_line;
    _exit(write(pipe_ends[1], &outcome, sizeof outcome) != sizeof outcome);
  }
  close(pipe_ends[1]);
  CHECK_EQ_INT(read(pipe_ends[0], &outcome, sizeof outcome), sizeof outcome);
  close(pipe_ends[0]);
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  CHECK_EQ_INT(status, 0);
  limiter->end(child);
  return outcome;
}

static void check_limited(const struct limiter *limiter) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  SKIP("a sanitizer has threads of its own, and ends the process when it gets none");
#endif
  for (unsigned i = 0; i < ids_countof(lives); i++) {
    struct outcome outcome = live_limited(limiter, lives[i]);
    if (outcome.cannot_status != 0)
      SKIP("%s cannot be limited here: %s", limiter->what, strerror(outcome.cannot_status));
    if (outcome.failed_line != 0)
      FAIL("%s:%d: what is expected there does not hold when %s are limited", __FILE__,
           outcome.failed_line, limiter->what);
  }
}

/* --------------------------------------------------------- the processes of a user */

/* A user that nobody is: what other programs run does not count. */
static int become_nobody(void) {
  uid_t nobody = 0x40000000 + (uid_t)getpid();
  if (geteuid() != 0)
    return EPERM;
  return setresuid(nobody, nobody, nobody) == 0 ? 0 : errno;
}

static int set_most_processes(rlim_t count) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NPROC, &limit) != 0)
    return errno;
  limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
  return setrlimit(RLIMIT_NPROC, &limit) == 0 ? 0 : errno;
}

static int set_processes(unsigned more_count) {
  return set_most_processes(1 + more_count);
}

static int lift_processes(void) {
  return set_most_processes(RLIM_INFINITY);
}

static void nothing_to_end(pid_t child) {
  (void)child;
}

SPEC(a_user_without_processes_left,
     "G2 a user has no processes left: the submit says so and keeps nothing, or the job waits for "
     "the worker that there is; later it goes on") {
  static const struct limiter limiter = { "a user's processes", become_nobody, set_processes,
                                          lift_processes, nothing_to_end };
  check_limited(&limiter);
}

/* --------------------------------------------------------- the tasks of a cgroup */

static char group_folder[256];

static int write_figure(const char *name, const char *figure) {
  char path[sizeof group_folder + 32];
  snprintf(path, sizeof path, "%s/%s", group_folder, name);
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0)
    return errno;
  int status = write(file, figure, strlen(figure)) < 0 ? errno : 0;
  close(file);
  return status;
}

/* At the root of the hierarchy, of version 1 or 2, where root may make one. */
static const char *const hierarchies[] = { "/sys/fs/cgroup/pids", "/sys/fs/cgroup" };

static void name_group(unsigned hierarchy, pid_t process) {
  snprintf(group_folder, sizeof group_folder, "%s/idlesched-spec-%d", hierarchies[hierarchy],
           (int)process);
}

static int enter_group(void) {
  int status = ENOENT;
  for (unsigned i = 0; i < ids_countof(hierarchies); i++) {
    name_group(i, getpid());
    if (mkdir(group_folder, 0755) != 0)
      status = errno;
    else if ((status = write_figure("pids.max", "max")) == 0)
      return write_figure("cgroup.procs", "0");
  }
  return status;
}

/* Once its last process is quite gone. */
static void remove_group(pid_t child) {
  for (unsigned i = 0; i < ids_countof(hierarchies); i++) {
    name_group(i, child);
    WAIT_UNTIL(rmdir(group_folder) == 0 || errno != EBUSY, SOON_MS);
  }
}

static int set_tasks(unsigned more_count) {
  char figure[16];
  snprintf(figure, sizeof figure, "%u", 1 + more_count);
  return write_figure("pids.max", figure);
}

static int lift_tasks(void) {
  return write_figure("pids.max", "max");
}

SPEC(a_cgroup_without_tasks_left,
     "G2 a container has no tasks left: the submit says so and keeps nothing, or the job waits for "
     "the worker that there is; later it goes on") {
  static const struct limiter limiter = { "a cgroup's tasks", enter_group, set_tasks, lift_tasks,
                                          remove_group };
  check_limited(&limiter);
}
