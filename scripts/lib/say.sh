# SPDX-License-Identifier: MIT
#
# say.sh - what scripts/setup tells its reader: one line per step, one message per failure.

say() {
  printf 'setup: %s\n' "$*"
}

say_error() {
  printf 'setup: %s\n' "$*" >&2
}

# The one way in which setup gives up: the reason and everything that a person can do instead.
# It ends the process, so it must not be called in a subshell.
give_up() {
  {
    printf 'setup: %s\n\n' "$*"
    needs_print_by_hand
  } >&2
  exit 1
}

# The same when a logged command is to blame: the end of what it said stands between the two.
give_up_with_log() {
  {
    printf 'setup: %s; %s ends with:\n' "$*" "$log"
    tac "$log" | sed '/^\$ /q' | tac | tail -n 6 | sed 's/^/  | /'
    printf '\n'
    needs_print_by_hand
  } >&2
  exit 1
}

log_line() {
  printf '%s\n' "$*" >>"$log"
}

# Runs a command with its output in the log, headed by the command itself.  Nothing that runs
# here may wait for an answer that nobody sees being asked for.
run_logged() {
  log_line "\$ $*"
  "$@" >>"$log" 2>&1 </dev/null
}
