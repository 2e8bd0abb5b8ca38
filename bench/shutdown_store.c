/* SPDX-License-Identifier: MIT */
/*
 * shutdown_store.c - see shutdown_store.h.
 */
#include "shutdown_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"

#define NODE_BYTES_LEAST 64
#define NODE_BYTES_MOST 512
/* What a worker needs only while it builds: one for so many nodes, of a size of its own, so
 * that whole pages are free afterwards. */
#define TEMPORARY_EVERY 32
#define TEMPORARY_BYTES 2048
#define ENCODE_ROUNDS 4

/* ---------------------------------------------------------------- the graph */

/* Size and content follow from the key. */
struct node {
  struct node *next;
  uint64_t key;
  unsigned char data[];
};

/* What one worker has made. */
struct part {
  idlesched_job job;
  unsigned index;
  struct node *shards[STORE_SHARDS_MAX];
  uint64_t nodes_count, keys_sum;
};

static const struct store *store;
static struct part parts[STORE_WORKERS_MAX];

static uint64_t seed_of(uint64_t key) {
  return (key + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

static size_t data_bytes(uint64_t key) {
  uint64_t random = seed_of(key);
  return NODE_BYTES_LEAST + bench_random(&random) % (NODE_BYTES_MOST - NODE_BYTES_LEAST);
}

static void fill(uint64_t key, unsigned char *data, size_t size) {
  uint64_t random = seed_of(key);
  for (size_t i = 0; i < size; i += sizeof random) {
    uint64_t next = bench_random(&random);
    memcpy(data + i, &next, size - i < sizeof next ? size - i : sizeof next);
  }
}

static struct node *make_node(uint64_t key) {
  size_t size = data_bytes(key);
  struct node *node = idlesched_realloc(NULL, sizeof *node + size);
  if (node == NULL)
    bench_fail("no memory for a node of %zu bytes", sizeof *node + size);
  node->key = key;
  fill(key, node->data, size);
  return node;
}

static struct node *make_temporary(void) {
  struct node *node = idlesched_realloc(NULL, TEMPORARY_BYTES);
  if (node == NULL)
    bench_fail("no memory for %d bytes", TEMPORARY_BYTES);
  memset(node, 1, TEMPORARY_BYTES);
  return node;
}

static void push(struct node **list, struct node *node) {
  node->next = *list;
  *list = node;
}

static struct node *pop(struct node **list) {
  struct node *node = *list;
  if (node != NULL)
    *list = node->next;
  return node;
}

/* On a worker. */
static int build_part(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  struct part *part = job->context;
  struct node *temporaries = NULL;
  uint64_t random = seed_of(part->index);
  size_t most_bytes = store->mib * BENCH_MIB / store->workers_count;
  for (size_t bytes = 0; bytes < most_bytes;) {
    uint64_t key = (uint64_t)part->index << 32 | part->nodes_count++;
    struct node *node = make_node(key);
    part->keys_sum += key;
    bytes += sizeof *node + data_bytes(key);
    push(&part->shards[bench_random(&random) % store->shards_count], node);
    if (part->nodes_count % TEMPORARY_EVERY == 0)
      push(&temporaries, make_temporary());
  }
  for (struct node *node = pop(&temporaries); node != NULL; node = pop(&temporaries))
    idlesched_free(node);
  return 0;
}

void store_build(idlesched_pool *pool) {
  memset(parts, 0, sizeof parts);
  for (unsigned i = 0; i < store->workers_count; i++) {
    parts[i].index = i;
    parts[i].job.run = build_part;
    parts[i].job.context = &parts[i];
    MUST(idlesched_pool_submit_job(pool, &parts[i].job));
  }
  for (unsigned i = 0; i < store->workers_count; i++)
    MUST(idlesched_job_wait(&parts[i].job, IDLESCHED_NEVER));
}

/* ----------------------------------------------------------------- the file */

/* A record is the key and the data, encoded. */
static struct {
  int file;
  size_t length; /* of what is in the buffer */
  size_t begin;  /* when reading: of what was not taken yet */
  unsigned char buffer[1 << 18];
} disk;

void store_open(const struct store *settings) {
  store = settings;
  const char *folder = getenv("TMPDIR");
  char path[512];
  snprintf(path, sizeof path, "%s/idlesched_bench.XXXXXX", folder != NULL ? folder : "/tmp");
  disk.file = mkostemp(path, O_CLOEXEC);
  if (disk.file < 0 || unlink(path) != 0)
    bench_fail("there can be no file %s: %s", path, strerror(errno));
}

void store_close(void) {
  close(disk.file);
}

static void rewind_disk(bool is_emptied) {
  if (lseek(disk.file, 0, SEEK_SET) != 0 || (is_emptied && ftruncate(disk.file, 0) != 0))
    bench_fail("the file cannot be set to its begin: %s", strerror(errno));
  disk.length = disk.begin = 0;
}

static void flush_disk(void) {
  for (size_t done = 0; done < disk.length;) {
    ssize_t written = write(disk.file, disk.buffer + done, disk.length - done);
    if (written < 0)
      bench_fail("the file cannot be written: %s", strerror(errno));
    done += (size_t)written;
  }
  disk.length = 0;
}

static void write_disk(const void *data, size_t size) {
  if (disk.length + size > sizeof disk.buffer)
    flush_disk();
  memcpy(disk.buffer + disk.length, data, size);
  disk.length += size;
}

/* False at the end of the file, and for a record that is cut off. */
static bool read_disk(void *data, size_t size) {
  if (disk.length - disk.begin < size) {
    disk.length -= disk.begin;
    memmove(disk.buffer, disk.buffer + disk.begin, disk.length);
    disk.begin = 0;
    ssize_t more = read(disk.file, disk.buffer + disk.length, sizeof disk.buffer - disk.length);
    disk.length += more > 0 ? (size_t)more : 0;
  }
  if (disk.length - disk.begin < size)
    return false;
  memcpy(data, disk.buffer + disk.begin, size);
  disk.begin += size;
  return true;
}

/* The work of writing, in the place of a compressor: each byte depends on all before it. */
static void encode(const unsigned char *data, size_t size, unsigned char *out) {
  memcpy(out, data, size);
  for (unsigned round = 0; round < ENCODE_ROUNDS; round++) {
    uint64_t hash = round + 1;
    for (size_t i = 0; i < size; i++) {
      hash = (hash ^ out[i]) * UINT64_C(0x100000001B3);
      out[i] ^= (unsigned char)(hash >> 56);
    }
  }
}

static void persist_node(const struct node *node) {
  unsigned char encoded[NODE_BYTES_MOST];
  size_t size = data_bytes(node->key);
  encode(node->data, size, encoded);
  write_disk(&node->key, sizeof node->key);
  write_disk(encoded, size);
}

/* Shard by shard; the workers' parts in turn. */
void store_persist_and_drop(void) {
  rewind_disk(true);
  for (unsigned shard = 0; shard < store->shards_count; shard++)
    for (bool has_more = true; has_more;) {
      has_more = false;
      for (unsigned i = 0; i < store->workers_count; i++) {
        struct node *node = pop(&parts[i].shards[shard]);
        if (node == NULL)
          continue;
        persist_node(node);
        idlesched_free(node);
        has_more = true;
      }
    }
  flush_disk();
}

void store_read_back(void) {
  unsigned char data[NODE_BYTES_MOST], expected[NODE_BYTES_MOST], found[NODE_BYTES_MOST];
  uint64_t key, nodes_count = 0, keys_sum = 0;
  rewind_disk(false);
  while (read_disk(&key, sizeof key)) {
    size_t size = data_bytes(key);
    fill(key, data, size);
    encode(data, size, expected);
    if (!read_disk(found, size) || memcmp(found, expected, size) != 0)
      bench_fail("node %llu reads back as something else", (unsigned long long)key);
    nodes_count++;
    keys_sum += key;
  }
  for (unsigned i = 0; i < store->workers_count; i++) {
    nodes_count -= parts[i].nodes_count;
    keys_sum -= parts[i].keys_sum;
  }
  if (nodes_count != 0 || keys_sum != 0)
    bench_fail("not all nodes read back: %lld more than there were", (long long)nodes_count);
}
