/* SPDX-License-Identifier: MIT */
/*
 * rss_kit.c - see rss_kit.h.
 */
#include "rss_kit.h"

#include <dlfcn.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

/* Set in processes that a case has started. */
static const char marker[] = "IDLESCHED_SPEC_ALONE";

__attribute__((constructor)) static void set_process_defaults(void) {
  if (getenv(marker) == NULL)
    idlesched_process_defaults();
}

/* ------------------------------------------------------------------ what is needed */

bool is_system_allocator(void) {
  return strcmp(idlesched_allocator(), "system") == 0;
}

void need_kernel_figures(void) {
  idlesched_memory memory;
  if (is_sanitized)
    SKIP("a sanitizer's allocator keeps freed memory: no figures");
  if (idlesched_memory_read(&memory) != 0)
    SKIP("this system does not tell how much memory a process has");
}

void need_figures_to_the_page(void) {
  need_kernel_figures();
  if (is_system_allocator())
    SKIP("the C library's malloc cannot give back pages that are used in part");
}

/* ----------------------------------------------------------------------- figures */

uint64_t anonymous_bytes(void) {
  idlesched_memory memory;
  REQUIRE_EQ_INT(idlesched_memory_read(&memory), 0);
  return memory.anonymous_bytes;
}

void print_level(const char *what, uint64_t bytes, uint64_t start_bytes) {
  printf("%s: %+.2f MiB\n", what, ((double)bytes - (double)start_bytes) / (double)MIB);
}

uint64_t level_within_ms(uint64_t limit_bytes, uint64_t time_ms) {
  struct spec_wait wait = spec_wait_begin(time_ms);
  uint64_t waited_before_ns = others_waited_ns(), end_ns = wait.deadline_ns;
  uint64_t level = anonymous_bytes();
  while (level > limit_bytes && spec_now_ns() < end_ns) {
    uint64_t next_ns = spec_now_ns() + IDLESCHED_MS;
    WAIT_UNTIL(spec_now_ns() >= next_ns, SOON_MS);
    level = anonymous_bytes();
    uint64_t waited_ns = others_waited_ns();
    if (waited_ns > waited_before_ns) /* it falls when a thread ends */
      end_ns = wait.deadline_ns + waited_ns - waited_before_ns;
  }
  printf("level %.2f MiB, limit %.2f MiB, after %.0f ms of %.0f\n", (double)level / (double)MIB,
         (double)limit_bytes / (double)MIB, (double)(spec_now_ns() - wait.start_ns) / 1e6,
         (double)(end_ns - wait.start_ns) / 1e6);
  return level;
}

/* Of a file in a thread's folder; its length, or 0 when the thread has ended meanwhile. */
static size_t read_of_thread(const char *thread, const char *name, char *text, size_t size) {
  char path[300];
  snprintf(path, sizeof path, "/proc/self/task/%s/%s", thread, name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
  if (file >= 0)
    close(file);
  text[length > 0 ? length : 0] = '\0';
  return length > 0 ? (size_t)length : 0;
}

/*
 * For each thread but the caller: its file of that name, as one text.  Without a stream and
 * opendir(), which allocate, and so move what is measured.
 */
static void for_each_other_thread(const char *name, void (*visit)(const char *text, void *context),
                                  void *context) {
  _Alignas(struct dirent64) char entries[4096];
  char text[4096];
  ssize_t length;
  int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(folder >= 0);
  while ((length = getdents64(folder, entries, sizeof entries)) > 0)
    for (ssize_t at = 0; at < length;) {
      const struct dirent64 *entry = (const void *)(entries + at);
      at += entry->d_reclen;
      if (entry->d_name[0] == '.' || atoi(entry->d_name) == gettid() ||
          read_of_thread(entry->d_name, name, text, sizeof text) == 0)
        continue;
      visit(text, context);
    }
  close(folder);
}

static void add_wait(const char *text, void *sum_ns) {
  uint64_t waited_ns = 0;
  if (sscanf(text, "%*u %" SCNu64, &waited_ns) == 1)
    *(uint64_t *)sum_ns += waited_ns;
}

uint64_t others_waited_ns(void) {
  uint64_t sum_ns = 0;
  for_each_other_thread("schedstat", add_wait, &sum_ns);
  return sum_ns;
}

static void add_sleeper(const char *text, void *context) {
  struct sleeps *self = context;
  const char *switches = strstr(text, "\nvoluntary_ctxt_switches:");
  bool is_asleep = strstr(text, "\nState:\tS") != NULL;
  REQUIRE(switches != NULL);
  if (is_asleep && self->threads_count < SLEEPERS_MAX)
    self->counts[self->threads_count++] = strtoull(strchr(switches, ':') + 1, NULL, 10);
}

static bool all_sleep(struct sleeps *self, unsigned threads_count) {
  struct sleeps before = *self;
  *self = (struct sleeps){ 0 };
  for_each_other_thread("status", add_sleeper, self);
  return self->threads_count == threads_count && memcmp(self, &before, sizeof before) == 0;
}

void sleeps_read(struct sleeps *out, unsigned threads_count) {
  *out = (struct sleeps){ 0 };
  WAIT_UNTIL(all_sleep(out, threads_count), SOON_MS);
}

/* ------------------------------------------------------------------------ blocks */

void *take_blocks(uint64_t bytes) {
  void **last = NULL;
  for (uint64_t taken = 0, i = 0; taken < bytes; i++) {
    size_t size = 16 + (i * 797) % 4000;
    void **block = idlesched_realloc(NULL, size);
    REQUIRE(block != NULL);
    memset(block, 0x5a, size);
    *block = last;
    last = block;
    taken += size;
  }
  return last;
}

void give_blocks(void *last) {
  while (last != NULL) {
    void *next = *(void **)last;
    idlesched_free(last);
    last = next;
  }
}

void fragment(void *context) {
  struct fragments *self = context;
  void **kept = NULL, **others = NULL;
  for (uint64_t i = 0; i < self->bytes / KIB; i++) {
    void **block = idlesched_realloc(NULL, KIB);
    void ***list = i % self->run_count == 0 ? &kept : &others;
    REQUIRE(block != NULL);
    memset(block, 0x5a, KIB);
    *block = *list;
    *list = block;
  }
  give_blocks(others);
  self->kept = kept;
}

/* Looked up, as builds with another allocator must not even name it. */
void forced_collect(void) {
  void *symbol = dlsym(RTLD_DEFAULT, "mi_collect");
  if (symbol == NULL)
    SKIP("this build's allocator has no forced collect: %s", idlesched_allocator());
  void (*collect)(bool force);
  memcpy(&collect, &symbol, sizeof collect);
  collect(true);
}

/* ------------------------------------------------------------------------- pools */

idlesched_pool *started_pool(unsigned workers_count, uint64_t idle_release_ns,
                             uint64_t idle_exit_ns) {
  idlesched_pool *pool = POOL(.workers_max = workers_count, .idle_release_ns = idle_release_ns,
                              .idle_exit_ns = idle_exit_ns);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, workers_count), 0);
  WAIT_UNTIL(stats_of(pool).parked == workers_count, SOON_MS);
  return pool;
}

struct burst {
  pthread_barrier_t barrier;
  uint64_t bytes, peak_bytes;
};

static void take_and_give(void *context) {
  struct burst *self = context;
  void *blocks = take_blocks(self->bytes);
  if (pthread_barrier_wait(&self->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
    self->peak_bytes = anonymous_bytes();
  pthread_barrier_wait(&self->barrier);
  give_blocks(blocks);
}

uint64_t burst_on_all_workers(idlesched_pool *pool, uint64_t bytes) {
  struct burst burst = { .bytes = bytes };
  unsigned workers_count = stats_of(pool).workers_max;
  uint64_t before = anonymous_bytes();
  pthread_barrier_init(&burst.barrier, NULL, workers_count);
  for (unsigned i = 0; i < workers_count; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, take_and_give, &burst), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  pthread_barrier_destroy(&burst.barrier);
  CHECK_GE_U64(burst.peak_bytes - before, workers_count * bytes);
  return burst.peak_bytes - before;
}

/* --------------------------------------------------------------------- processes */

extern char **environ;

/* In a child: nobody's settings of the allocator but the case's. */
static void set_environment(const struct variable *variables) {
  static const char prefix[] = "MIMALLOC_";
  for (char **each = environ; *each != NULL;) {
    char name[100] = "";
    if (strncmp(*each, prefix, strlen(prefix)) == 0 && sscanf(*each, "%99[^=]", name) == 1 &&
        unsetenv(name) == 0)
      each = environ;
    else
      each++;
  }
  setenv(marker, "1", 1);
  for (; variables->name != NULL; variables++)
    setenv(variables->name, variables->value, 1);
}

bool passes_in_process(const char *case_name, const struct variable *variables) {
  if (getenv(marker) != NULL)
    return false;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    set_environment(variables);
    execl("/proc/self/exe", case_name, "--no-fork", case_name, (char *)NULL);
    _exit(127);
  }
  int status = 0;
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ_INT(WEXITSTATUS(status), 0);
  return true;
}

uint64_t number_from_program(const char *path, const char *argument,
                             const struct variable *variables) {
  int ends[2];
  char text[100] = "";
  uint64_t number = 0;
  REQUIRE_EQ_INT(pipe(ends), 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    set_environment(variables);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl(path, path, argument, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  int status = 0;
  ssize_t length = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  REQUIRE(WIFEXITED(status));
  REQUIRE_EQ_INT(WEXITSTATUS(status), 0);
  REQUIRE(length > 0);
  REQUIRE_EQ_INT(sscanf(text, "%" SCNu64, &number), 1);
  return number;
}
