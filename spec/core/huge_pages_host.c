/* SPDX-License-Identifier: MIT */
/*
 * huge_pages_host.c - a host whose malloc is the allocator: it sets the process defaults in
 * the first line of main(), or with an argument not at all, uses 64 MiB, and prints how
 * many bytes of huge pages it then has.  test_rss_fragment.c starts it.
 */
#include "idlesched.h"

#include <inttypes.h>
#include <stdlib.h>

#include "smaps.h"

enum { BLOCKS = 1024, BLOCK_BYTES = 64 * 1024 };

int main(int argc, char **argv) {
  if (argc == 1)
    idlesched_process_defaults();
  (void)argv;
  static char *blocks[BLOCKS];
  for (unsigned i = 0; i < BLOCKS; i++) {
    blocks[i] = idlesched_realloc(NULL, BLOCK_BYTES);
    if (blocks[i] == NULL)
      return 1;
    memset(blocks[i], 1, BLOCK_BYTES);
  }
  uint64_t bytes = smaps_bytes("AnonHugePages:");
  for (unsigned i = 0; i < BLOCKS; i++)
    idlesched_free(blocks[i]);
  if (bytes == UINT64_MAX)
    return 1;
  printf("%" PRIu64 "\n", bytes);
  return 0;
}
