/* SPDX-License-Identifier: MIT */
/*
 * test_status.c - every status that the public header names has a text of its own.
 */
#include "status.h"

#include <errno.h>
#include <string.h>

#include "harness.h"
#include "idlesched.h"

/* Those that idlesched.h promises somewhere. */
static const int statuses[] = { -EAGAIN, -EALREADY, -EBADMSG, -EBUSY,     -ECANCELED, -EDEADLK,
                                -EINVAL, -ENOMEM,   -ENOTSUP, -ESHUTDOWN, -ETIMEDOUT };

enum { STATUSES = sizeof statuses / sizeof statuses[0] };

SPEC(every_status_has_a_text_of_its_own, "status: every promised status has a text of its own") {
  for (int i = 0; i < STATUSES; i++) {
    const char *text = idlesched_strerror(statuses[i]);
    CHECK_NE_STR(text, NULL);
    CHECK_NE_STR(text, idlesched_strerror(-ENOENT));
    CHECK_GE_INT(strlen(text), 10);
    for (int j = 0; j < i; j++)
      CHECK_NE_STR(text, idlesched_strerror(statuses[j]));
  }
}

/* They are made part of other messages: "pool:submit: " and the text. */
SPEC(a_text_fits_into_a_sentence, "status: a text has no capital, full stop or line break") {
  for (int i = 0; i < STATUSES; i++) {
    const char *text = idlesched_strerror(statuses[i]);
    CHECK(text[0] >= 'a' && text[0] <= 'z');
    CHECK(text[strlen(text) - 1] != '.');
    CHECK(strchr(text, '\n') == NULL);
  }
}

SPEC(zero_and_above_is_success, "status: 0 and above is success") {
  CHECK_EQ_STR(idlesched_strerror(0), "success");
  CHECK_EQ_STR(idlesched_strerror(7), "success");
}

SPEC(an_unknown_status_has_a_text_too, "status: an unknown one has a text too, never NULL") {
  CHECK_EQ_STR(idlesched_strerror(-ENOENT), idlesched_strerror(-99999));
  CHECK_NE_STR(idlesched_strerror(-ENOENT), "success");
  CHECK_EQ_STR(ids_status_text(-EINVAL), idlesched_strerror(-EINVAL));
}
