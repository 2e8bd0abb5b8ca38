/* SPDX-License-Identifier: MIT */
#include "status.h"

#include "base.h"

static const struct {
  int status;
  const char *text;
} texts[] = {
  { 0, "success" },
  { -EAGAIN, "the system refuses another thread or other resource: a limit is reached" },
  { -EALREADY, "it is under way already: the job, or the watch; or, for a cancel, no more" },
  { -EBADMSG, "the file is not one of the kernel's pressure stall information" },
  { -EBUSY, "the job runs, and has been asked to stop" },
  { -ECANCELED, "the job, or its token, was cancelled before it ran" },
  { -EDEADLK, "called from a job of the same pool, which would wait for itself" },
  { -EINVAL, "an argument is out of its range, or the job was never submitted" },
  { -ENOMEM, "not enough memory" },
  { -ENOTSUP, "this system, or the allocator of this build, has no such thing" },
  { -EPERM, "this cannot be changed any more while the process runs" },
  { -ESHUTDOWN, "the pool is closed" },
  { -ETIMEDOUT, "the time limit has passed" },
};

const char *ids_status_text(int status) {
  for (size_t i = 0; i < ids_countof(texts); i++)
    if (texts[i].status == status)
      return texts[i].text;
  return status < 0 ? "an error of the system" : "success";
}
