/* SPDX-License-Identifier: MIT */
/*
 * psi_sim.c - pressure stall information of the simulated kernel: one file, on which one
 * trigger at a time can be set, and which tells when the scenario says so.
 */
#include <string.h>

#include "inside.h"

enum { TOLD = 1, WOKEN = 2, GONE = 4 };

static struct {
  struct sim_psi_config config;
  struct ids_psi *listener; /* the one that was opened last, with a trigger */
  uint64_t stalled_ns;
  bool is_removed;
} kernel;

void sim_psi_begin_run(void) {
  memset(&kernel, 0, sizeof kernel);
}

void sim_psi_configure(const struct sim_psi_config *config) {
  kernel.config = *config;
}

int ids_psi_path(unsigned place, char path[IDS_PSI_PATH_SIZE]) {
  (void)place;
  strcpy(path, SIM_PSI_PATH);
  return 0;
}

int ids_psi_open(struct ids_psi *self, const char *path, uint64_t stall_ns, uint64_t window_ns,
                 const char *site) {
  (void)window_ns;
  sim_must_be_active("ids_psi_open");
  sim_do("open", path);
  if (kernel.is_removed || strcmp(path, SIM_PSI_PATH) != 0)
    return -ENOENT;
  if (stall_ns > 0 && kernel.config.takes_no_trigger)
    return -EPERM;
  *self = (struct ids_psi){ .block = ids_alloc(1, site), .stall_ns = stall_ns };
  if (self->block == NULL)
    return -ENOMEM;
  if (stall_ns > 0)
    kernel.listener = self;
  return 0;
}

void ids_psi_close(struct ids_psi *self) {
  sim_do("close", SIM_PSI_PATH);
  if (kernel.listener == self)
    kernel.listener = NULL;
  ids_free(self->block);
  self->block = NULL;
}

static void set_bit(struct ids_psi *self, uint32_t bit) {
  uint32_t word;
  do
    word = ids_load_acquire(&self->word);
  while (!ids_store_if_equal(&self->word, word, word | bit));
  ids_futex_wake(&self->word, 1);
}

/* Returns as often as the word changes, also for what the caller does not listen to. */
enum ids_psi_news ids_psi_wait(struct ids_psi *self, bool listens, uint64_t deadline_ns) {
  uint32_t word = ids_load_acquire(&self->word);
  if (word & WOKEN)
    return IDS_PSI_QUIET;
  if (listens && (word & GONE))
    return IDS_PSI_GONE;
  if (listens && (word & TOLD) && ids_store_if_equal(&self->word, word, word & ~(uint32_t)TOLD))
    return IDS_PSI_TOLD;
  ids_futex_wait(&self->word, word, deadline_ns);
  return IDS_PSI_QUIET;
}

void ids_psi_wake(struct ids_psi *self) {
  set_bit(self, WOKEN);
}

int ids_psi_read(struct ids_psi *self, uint64_t *out_stalled_ns) {
  (void)self;
  if (kernel.is_removed)
    return -ENODEV;
  *out_stalled_ns = kernel.stalled_ns;
  return 0;
}

void sim_psi_stall(uint64_t duration_ns) {
  kernel.stalled_ns += duration_ns;
  if (kernel.listener != NULL && duration_ns >= kernel.listener->stall_ns)
    set_bit(kernel.listener, TOLD);
}

void sim_psi_remove(void) {
  kernel.is_removed = true;
  if (kernel.listener != NULL)
    set_bit(kernel.listener, GONE);
}
