/* SPDX-License-Identifier: MIT */
/*
 * main.c - a program of somebody else's: one job on a pool, and what it runs with.
 *
 * Prints `VERSION ALLOCATOR: 6 * 7 = 42`; exit code 1 with the reason if it cannot.
 */
#include <stdio.h>

#include <idlesched.h>

struct product {
  int left, right, result;
};

static void multiply(void *context) {
  struct product *product = context;
  product->result = product->left * product->right;
}

static int refuse(const char *what, int status) {
  fprintf(stderr, "consumer: %s: %s\n", what, idlesched_strerror(status));
  return 1;
}

int main(void) {
  if (idlesched_version() != IDLESCHED_VERSION_NUMBER) {
    fprintf(stderr, "consumer: the library is version %u; expected %d, that of its header\n",
            idlesched_version(), IDLESCHED_VERSION_NUMBER);
    return 1;
  }

  idlesched_pool *pool;
  int status = idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 2 });
  if (status != 0)
    return refuse("no pool", status);
  struct product product = { .left = 6, .right = 7 };
  status = idlesched_pool_submit(pool, multiply, &product);
  if (status == 0)
    status = idlesched_pool_wait(pool, 10 * IDLESCHED_S);
  idlesched_pool_destroy(pool);
  if (status != 0)
    return refuse("no product", status);

  printf("%s %s: %d * %d = %d\n", IDLESCHED_VERSION_STRING, idlesched_allocator(), product.left,
         product.right, product.result);
  return 0;
}
