/* SPDX-License-Identifier: MIT */
/*
 * pressure.c - see pressure.h.
 */
#include "pressure.h"

#include <string.h>

#include "fork.h"
#include "heap.h"
#include "release.h"

/* Of an unprivileged thread some kernels take windows of multiples of this. */
#define WINDOW_STEP_NS (2 * IDS_S)

/* For a release and what it reads of the system; no code of the host's runs here. */
#define STACK_SIZE (256 * 1024)

_Static_assert(sizeof((idlesched_pressure_stats){ 0 }.path) == IDS_PSI_PATH_SIZE,
               "stats tell every path that can be opened");

/*
 *         start           stop, join
 *   OFF ---------> ON ----------------> STOPPING
 *    ^                                     |
 *    +-------------------------------------+  closed
 *
 * The thread ends when it is not ON any more, or when its file is gone; it is joined, and
 * what it used is closed, by whoever stops, or starts anew.
 */
enum state { OFF, ON, STOPPING };

/*
 * Access rules, one letter per field:
 *   L  only with the lock held
 *   C  constant while the thread is there: written before it starts and after it was joined
 */
static struct {
  struct ids_fork_mark fork;
  struct ids_mutex lock;
  struct ids_cond changed;               /* L  broadcast: the thread is there; state is OFF */
  enum state state;                      /* L */
  bool has_begun;                        /* L  the thread; before that nobody can join it */
  bool is_gone;                          /* L  there will be no more news of the file */
  uint64_t stall_ns, window_ns;          /* C  as the kernel took them */
  uint64_t cooldown_ns, timeout_ns;      /* C */
  char path[IDS_PSI_PATH_SIZE];          /* C */
  bool has_trigger;                      /* C */
  struct ids_psi psi;                    /* C  but for its own wait and wake */
  struct ids_thread thread;              /* C */
  uint64_t starts_count;                 /* L */
  uint64_t events_count, releases_count; /* L */
  uint64_t returned_bytes;               /* L */
} watch = { .lock = IDS_MUTEX_STATIC, .changed = IDS_COND_STATIC };

/* A child has copies of the parent's files, and not its thread. */
static void lock(void) {
  if (ids_fork_is_first(&watch.fork)) {
    watch.lock = (struct ids_mutex)IDS_MUTEX_STATIC;
    watch.changed = (struct ids_cond)IDS_COND_STATIC;
    if (watch.state != OFF)
      ids_psi_close(&watch.psi);
    watch.state = OFF;
    ids_fork_done(&watch.fork);
  }
  ids_mutex_lock(&watch.lock);
}

static void unlock(void) {
  ids_mutex_unlock(&watch.lock);
}

/* ------------------------------------------------------------------- the thread */

/* Its own; nobody else reads it. */
struct watcher {
  uint64_t rests_until_ns;
  uint64_t looks_at_ns;    /* at the file, when there is no trigger; else IDS_NEVER */
  uint64_t stalled_ns;     /* as it was read then */
  uint64_t lasts_until_ns; /* an event up to then is of the same pressure */
  uint64_t released_at_ns; /* the end of the last release; only while a pressure lasts */
};

/* Without a trigger: the window is over, and the file says how much of it was a stall. */
static enum ids_psi_news look(struct watcher *self, uint64_t now_ns) {
  uint64_t before_ns = self->stalled_ns;
  self->looks_at_ns = ids_after_ns(now_ns, watch.window_ns);
  if (ids_psi_read(&watch.psi, &self->stalled_ns) != 0)
    return IDS_PSI_GONE;
  return self->stalled_ns >= ids_after_ns(before_ns, watch.stall_ns) ? IDS_PSI_TOLD : IDS_PSI_QUIET;
}

static enum ids_psi_news next_news(struct watcher *self) {
  bool rests = ids_now_ns() < self->rests_until_ns;
  uint64_t deadline_ns = rests ? ids_earlier_ns(self->rests_until_ns, self->looks_at_ns)
                               : self->looks_at_ns;
  enum ids_psi_news news = ids_psi_wait(&watch.psi, !rests, deadline_ns);
  uint64_t now_ns = ids_now_ns();
  if (news == IDS_PSI_QUIET && now_ns >= self->looks_at_ns)
    news = look(self, now_ns);
  return news;
}

static void react(struct watcher *self) {
  uint64_t now_ns = ids_now_ns();
  bool lasts = now_ns <= self->lasts_until_ns;
  if (!lasts || now_ns >= ids_after_ns(self->released_at_ns, watch.cooldown_ns)) {
    idlesched_release_report report;
    (void)ids_release_all(watch.timeout_ns, &report);
    now_ns = self->released_at_ns = ids_now_ns();
    lock();
    watch.releases_count++;
    watch.returned_bytes += report.returned_bytes;
    unlock();
  }
  self->rests_until_ns = ids_after_ns(now_ns, watch.window_ns);
  self->lasts_until_ns = ids_after_ns(now_ns, 2 * watch.window_ns);
}

/* Whether there is something to react to, or to wait for. */
static bool take(enum ids_psi_news news) {
  lock();
  bool goes_on = watch.state == ON && news != IDS_PSI_GONE;
  watch.is_gone = news == IDS_PSI_GONE;
  watch.events_count += goes_on && news == IDS_PSI_TOLD;
  unlock();
  return goes_on;
}

static void thread_main(void *context) {
  (void)context;
  struct watcher self = { .looks_at_ns = IDS_NEVER };
  enum ids_psi_news news = IDS_PSI_QUIET;
  if (!watch.has_trigger) {
    /* What has stalled before counts for nothing. */
    (void)look(&self, ids_now_ns());
  }
  lock();
  watch.has_begun = true;
  ids_cond_broadcast(&watch.changed);
  unlock();
  while (take(news)) {
    if (news == IDS_PSI_TOLD)
      react(&self);
    news = next_news(&self);
  }
  ids_heap_thread_ends();
}

/* ------------------------------------------------------------------------ start */

static bool is_refusal(int status) {
  return status == -EINVAL || status == -EPERM || status == -EACCES || status == -EROFS ||
         status == -EBUSY;
}

/* The next window that every kernel takes, and as much of it. */
static void round_window_up(void) {
  uint64_t window_ns = (watch.window_ns + WINDOW_STEP_NS - 1) / WINDOW_STEP_NS * WINDOW_STEP_NS;
  watch.stall_ns = watch.stall_ns * (window_ns / IDS_MS) / (watch.window_ns / IDS_MS);
  watch.window_ns = window_ns;
}

static int open_psi(uint64_t stall_ns) {
  return ids_psi_open(&watch.psi, watch.path, stall_ns, watch.window_ns, "pressure.file");
}

/* With a trigger, if the kernel takes one. */
static int open_path(const idlesched_pressure_config *config) {
  watch.stall_ns = config->stall_ns;
  watch.window_ns = config->window_ns;
  watch.has_trigger = true;
  int status = open_psi(watch.stall_ns);
  if (is_refusal(status) && watch.window_ns % WINDOW_STEP_NS != 0) {
    round_window_up();
    status = open_psi(watch.stall_ns);
  }
  if (is_refusal(status)) {
    watch.stall_ns = config->stall_ns;
    watch.window_ns = config->window_ns;
    watch.has_trigger = false;
    status = open_psi(0);
  }
  return status;
}

static int open_somewhere(const idlesched_pressure_config *config) {
  if (config->path != NULL) {
    if (strlen(config->path) >= sizeof watch.path)
      return -ENAMETOOLONG;
    memcpy(watch.path, config->path, strlen(config->path) + 1);
    return open_path(config);
  }
  for (unsigned place = 0; place < IDS_PSI_PLACES; place++) {
    int status = ids_psi_path(place, watch.path);
    if (status == 0)
      status = open_path(config);
    if (status != -ENOENT && status != -ENOTSUP)
      return status;
  }
  return -ENOTSUP;
}

static int start_locked(const idlesched_pressure_config *config) {
  static const struct ids_thread_config thread = { .main = thread_main,
                                                   .name = "idlesched-psi",
                                                   .stack_size = STACK_SIZE };
  watch.cooldown_ns = config->cooldown_ns;
  watch.timeout_ns = config->timeout_ns;
  ids_fork_hold_off(); /* a child knows of every file that it has */
  int status = open_somewhere(config);
  if (status == 0) {
    status = ids_thread_start(&watch.thread, &thread, "pressure.thread");
    if (status != 0)
      ids_psi_close(&watch.psi);
  }
  if (status == 0) {
    watch.state = ON;
    watch.has_begun = false;
    watch.is_gone = false;
    watch.starts_count++;
    watch.events_count = watch.releases_count = watch.returned_bytes = 0;
  }
  ids_fork_let();
  return status;
}

/* ------------------------------------------------------------------------- stop */

/* What is watched now is so no more; the lock is not held all the time. */
static void stop_locked(void) {
  if (watch.state == STOPPING) { /* somebody else stops; it may be on again by then */
    uint64_t number = watch.starts_count;
    while (watch.state == STOPPING && watch.starts_count == number)
      ids_cond_wait(&watch.changed, &watch.lock, IDS_NEVER);
    return;
  }
  watch.state = STOPPING;
  while (!watch.has_begun)
    ids_cond_wait(&watch.changed, &watch.lock, IDS_NEVER);
  unlock();
  ids_psi_wake(&watch.psi);
  ids_thread_join(&watch.thread);
  lock();
  ids_fork_hold_off();
  ids_psi_close(&watch.psi);
  watch.state = OFF;
  ids_fork_let();
  ids_cond_broadcast(&watch.changed);
}

static bool is_watching_locked(void) {
  return watch.state == ON && !watch.is_gone;
}

int ids_pressure_start(const idlesched_pressure_config *config) {
  lock();
  while (watch.state != OFF && !is_watching_locked())
    stop_locked();
  int status = is_watching_locked() ? -EALREADY : start_locked(config);
  unlock();
  return status;
}

void ids_pressure_stop(void) {
  lock();
  if (watch.state != OFF)
    stop_locked();
  unlock();
}

void ids_pressure_stats_read(idlesched_pressure_stats *out) {
  *out = (idlesched_pressure_stats){ 0 };
  lock();
  out->starts_count = watch.starts_count;
  if (is_watching_locked()) {
    out->is_watching = true;
    out->has_trigger = watch.has_trigger;
    out->window_ns = watch.window_ns;
    memcpy(out->path, watch.path, sizeof out->path);
  }
  out->events_count = watch.events_count;
  out->releases_count = watch.releases_count;
  out->returned_bytes = watch.returned_bytes;
  unlock();
}
