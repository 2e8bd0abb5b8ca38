/* SPDX-License-Identifier: MIT */
/*
 * plat_file.c - see plat_file.h.
 */
#include "plat_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int open_to_read(const char *path) {
  int file;
  do
    file = open(path, O_RDONLY | O_CLOEXEC);
  while (file < 0 && errno == EINTR);
  return file < 0 ? -errno : file;
}

/* As many bytes as there are, at most so many; 0 at the end, or -errno. */
static ssize_t read_some(int file, char *to, size_t size) {
  ssize_t count;
  do
    count = read(file, to, size);
  while (count < 0 && errno == EINTR);
  return count < 0 ? -errno : count;
}

int ids_file_read(const char *path, char *text, size_t size) {
  size_t length = 0;
  ssize_t count = 0;
  text[0] = '\0';
  int file = open_to_read(path);
  if (file < 0)
    return file;
  while (length < size - 1 && (count = read_some(file, text + length, size - 1 - length)) > 0)
    length += (size_t)count;
  close(file);
  text[count < 0 ? 0 : length] = '\0';
  return count < 0 ? (int)count : (int)length;
}

int ids_lines_open(struct ids_lines *self, const char *path) {
  self->file = open_to_read(path);
  self->status = 0;
  self->begin = self->end = 0;
  self->was_cut = false;
  return self->file < 0 ? self->file : 0;
}

/* Move what is left to the front and read on; false at the end. */
static bool read_more(struct ids_lines *self) {
  memmove(self->buffer, self->buffer + self->begin, self->end - self->begin);
  self->end -= self->begin;
  self->begin = 0;
  ssize_t count = read_some(self->file, self->buffer + self->end,
                            sizeof self->buffer - 1 - self->end);
  if (count < 0)
    self->status = (int)count;
  if (count <= 0)
    return false;
  self->end += (size_t)count;
  return true;
}

char *ids_lines_next(struct ids_lines *self) {
  for (;;) {
    char *line = self->buffer + self->begin;
    size_t length = self->end - self->begin;
    char *end = memchr(line, '\n', length);
    bool is_cut = end == NULL;
    if (is_cut && length < sizeof self->buffer - 1) {
      if (!read_more(self))
        return NULL;
      continue;
    }
    if (is_cut)
      end = line + length - 1;
    *end = '\0';
    self->begin += (size_t)(end - line) + 1;
    bool is_rest = self->was_cut;
    self->was_cut = is_cut;
    if (!is_rest)
      return line;
  }
}

int ids_lines_close(struct ids_lines *self) {
  close(self->file);
  return self->status;
}
