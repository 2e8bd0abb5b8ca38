/* SPDX-License-Identifier: MIT */
/*
 * pressure_fake.c - see pressure_fake.h.
 */
#include "pressure_fake.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "harness.h"
#include "idlesched.h"
#include "plat.h"

int __wrap_ids_psi_path(unsigned place, char path[IDS_PSI_PATH_SIZE]);
int __wrap_ids_psi_open(struct ids_psi *self, const char *path, uint64_t stall_ns,
                        uint64_t window_ns, const char *site);
void __wrap_ids_psi_close(struct ids_psi *self);
enum ids_psi_news __wrap_ids_psi_wait(struct ids_psi *self, bool listens, uint64_t deadline_ns);
void __wrap_ids_psi_wake(struct ids_psi *self);
int __wrap_ids_psi_read(struct ids_psi *self, uint64_t *out_stalled_ns);
int __wrap_ids_release_all(uint64_t timeout_ns, idlesched_release_report *out);

enum { ANSWERS_MAX = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* All of it with the lock held. */
static struct {
  int places[IDS_PSI_PLACES];
  int answers[ANSWERS_MAX];
  unsigned answers_count, opens_count, files_count;
  struct pressure_fake_open opens[ANSWERS_MAX];
  bool is_told, is_woken, is_removed;
  uint64_t stalled_ns;
  int read_status;
  unsigned reads_count;
} kernel;

static struct {
  uint64_t returns_bytes, timeout_ns;
  unsigned count;
  bool is_held;
} release;

static void set(int *variable, int value) {
  pthread_mutex_lock(&lock);
  *variable = value;
  pthread_mutex_unlock(&lock);
}

static unsigned get(const unsigned *variable) {
  pthread_mutex_lock(&lock);
  unsigned value = *variable;
  pthread_mutex_unlock(&lock);
  return value;
}

static void set_flag(bool *flag, bool value) {
  pthread_mutex_lock(&lock);
  *flag = value;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* --------------------------------------------------------------- what a case says */

void pressure_fake_find(unsigned place, int status) {
  set(&kernel.places[place], status);
}

void pressure_fake_answer(const int *statuses, unsigned count) {
  pthread_mutex_lock(&lock);
  memcpy(kernel.answers, statuses, count * sizeof *statuses);
  kernel.answers_count = count;
  kernel.opens_count = 0;
  pthread_mutex_unlock(&lock);
}

unsigned pressure_fake_opens_count(void) {
  return get(&kernel.opens_count);
}

struct pressure_fake_open pressure_fake_open(unsigned i) {
  pthread_mutex_lock(&lock);
  struct pressure_fake_open copy = kernel.opens[i];
  pthread_mutex_unlock(&lock);
  return copy;
}

unsigned pressure_fake_files_count(void) {
  return get(&kernel.files_count);
}

void pressure_fake_tell(void) {
  set_flag(&kernel.is_told, true);
}

void pressure_fake_remove(void) {
  set_flag(&kernel.is_removed, true);
}

void pressure_fake_stall(uint64_t duration_ns) {
  pthread_mutex_lock(&lock);
  kernel.stalled_ns += duration_ns;
  pthread_mutex_unlock(&lock);
}

void pressure_fake_read(int status) {
  set(&kernel.read_status, status);
}

unsigned pressure_fake_reads_count(void) {
  return get(&kernel.reads_count);
}

void pressure_fake_returns(uint64_t bytes) {
  pthread_mutex_lock(&lock);
  release.returns_bytes = bytes;
  pthread_mutex_unlock(&lock);
}

unsigned pressure_fake_releases_count(void) {
  return get(&release.count);
}

uint64_t pressure_fake_release_timeout_ns(void) {
  pthread_mutex_lock(&lock);
  uint64_t timeout_ns = release.timeout_ns;
  pthread_mutex_unlock(&lock);
  return timeout_ns;
}

void pressure_fake_hold_releases(void) {
  set_flag(&release.is_held, true);
}

void pressure_fake_let_releases_go(void) {
  set_flag(&release.is_held, false);
}

/* ------------------------------------------------------------- what the core calls */

int __wrap_ids_psi_path(unsigned place, char path[IDS_PSI_PATH_SIZE]) {
  snprintf(path, IDS_PSI_PATH_SIZE, "%s", place == 0 ? PRESSURE_FAKE_CGROUP : PRESSURE_FAKE_SYSTEM);
  pthread_mutex_lock(&lock);
  int status = kernel.places[place];
  pthread_mutex_unlock(&lock);
  return status;
}

int __wrap_ids_psi_open(struct ids_psi *self, const char *path, uint64_t stall_ns,
                        uint64_t window_ns, const char *site) {
  (void)site;
  memset(self, 0, sizeof *self);
  self->has_trigger = stall_ns > 0;
  pthread_mutex_lock(&lock);
  unsigned i = kernel.opens_count++;
  struct pressure_fake_open *open = &kernel.opens[i % ANSWERS_MAX];
  snprintf(open->path, sizeof open->path, "%s", path);
  open->stall_ns = stall_ns;
  open->window_ns = window_ns;
  int status = i < kernel.answers_count ? kernel.answers[i] : 0;
  if (status == 0) {
    kernel.files_count++;
    kernel.is_told = kernel.is_woken = kernel.is_removed = false;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void __wrap_ids_psi_close(struct ids_psi *self) {
  (void)self;
  pthread_mutex_lock(&lock);
  kernel.files_count--;
  pthread_mutex_unlock(&lock);
}

static void wait_for_change(uint64_t deadline_ns) {
  uint64_t now_ns = ids_now_ns();
  uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  struct timespec until;
  if (deadline_ns == IDS_NEVER) {
    pthread_cond_wait(&changed, &lock);
    return;
  }
  clock_gettime(CLOCK_REALTIME, &until);
  uint64_t nanoseconds = (uint64_t)until.tv_nsec + left_ns;
  until.tv_sec += (time_t)(nanoseconds / IDS_S);
  until.tv_nsec = (long)(nanoseconds % IDS_S);
  pthread_cond_timedwait(&changed, &lock, &until);
}

static enum ids_psi_news news_locked(const struct ids_psi *self) {
  if (kernel.is_removed)
    return IDS_PSI_GONE;
  if (!kernel.is_told || !self->has_trigger)
    return IDS_PSI_QUIET;
  kernel.is_told = false;
  return IDS_PSI_TOLD;
}

enum ids_psi_news __wrap_ids_psi_wait(struct ids_psi *self, bool listens, uint64_t deadline_ns) {
  enum ids_psi_news news = IDS_PSI_QUIET;
  pthread_mutex_lock(&lock);
  while (!kernel.is_woken && news == IDS_PSI_QUIET && ids_now_ns() < deadline_ns) {
    news = listens ? news_locked(self) : IDS_PSI_QUIET;
    if (news == IDS_PSI_QUIET)
      wait_for_change(deadline_ns);
  }
  pthread_mutex_unlock(&lock);
  return news;
}

void __wrap_ids_psi_wake(struct ids_psi *self) {
  (void)self;
  set_flag(&kernel.is_woken, true);
}

int __wrap_ids_psi_read(struct ids_psi *self, uint64_t *out_stalled_ns) {
  (void)self;
  pthread_mutex_lock(&lock);
  *out_stalled_ns = kernel.stalled_ns;
  kernel.reads_count++;
  int status = kernel.read_status;
  pthread_mutex_unlock(&lock);
  return status;
}

int __wrap_ids_release_all(uint64_t timeout_ns, idlesched_release_report *out) {
  *out = (idlesched_release_report){ 0 };
  pthread_mutex_lock(&lock);
  release.count++;
  release.timeout_ns = timeout_ns;
  while (release.is_held)
    pthread_cond_wait(&changed, &lock);
  out->returned_bytes = release.returns_bytes;
  pthread_mutex_unlock(&lock);
  return 0;
}
