/* SPDX-License-Identifier: MIT */
/*
 * plat_file.h - texts of the kernel's, read without an allocation.  For plat_X.c alone.
 */
#ifndef IDS_PLAT_FILE_H
#define IDS_PLAT_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Read a small file whole, or its first size - 1 bytes, and a final zero: the length, or
 * -errno, and then an empty text. */
int ids_file_read(const char *path, char *text, size_t size);

/* A text, line by line. */
struct ids_lines {
  int file;
  int status;        /* -errno after a failed read */
  size_t begin, end; /* what was read, and not handed out, lies between */
  bool was_cut;      /* the rest of a line follows, that was handed out in part */
  char buffer[8192];
};

/* 0, or -errno. */
int ids_lines_open(struct ids_lines *self, const char *path);
/* The next line, without its end and without what does not fit into the buffer, which only
 * the name of a file is long enough for; NULL when there is none.  It may be written to, and
 * is there until the next call. */
char *ids_lines_next(struct ids_lines *self);
/* 0, or -errno of the read that failed. */
int ids_lines_close(struct ids_lines *self);

#endif
