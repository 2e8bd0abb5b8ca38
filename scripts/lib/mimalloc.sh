# SPDX-License-Identifier: MIT
#
# mimalloc.sh - finds a mimalloc that is new enough, or unpacks one beside the build.
#
# Two packages of a newer Debian are all it takes: they ask for an old C library only, so they run
# on every system that setup supports.

readonly mimalloc_minimum=3.6 mimalloc_minimum_number=30600
readonly mimalloc_release=forky
readonly mimalloc_packages=(libmimalloc3 libmimalloc-dev)

# True if nothing has to be done about mimalloc.  Sets mimalloc_state to what --check says of it.
# The order is the one of core/mimalloc.cmake.
mimalloc_is_there() {
  local prefix prefixes=(/usr/local /usr "$deps_dir/mimalloc/usr")
  if [[ ${IDLESCHED_ALLOCATOR:-} == system ]]; then
    mimalloc_state='not wanted (IDLESCHED_ALLOCATOR=system)'
    return
  fi
  [[ -z ${IDLESCHED_MIMALLOC_ROOT:-} ]] || prefixes=("$IDLESCHED_MIMALLOC_ROOT")
  for prefix in "${prefixes[@]}"; do
    mimalloc_header_is_usable "$prefix/include/mimalloc.h" || continue
    mimalloc_state="$mimalloc_version ($prefix)"
    return
  done
  return 1
}

# True if $1 is the header of a mimalloc that is new enough and has the two functions by which
# memory is given back.  Sets mimalloc_version.
mimalloc_header_is_usable() {
  local line number=
  [[ -r $1 ]] || return
  while read -r line; do
    [[ $line =~ ^'#define MI_MALLOC_VERSION '+([0-9]+) ]] && number=${BASH_REMATCH[1]} && break
  done <"$1"
  ((${number:-0} >= mimalloc_minimum_number)) || return
  grep -q mi_theap_quiescent_abandon "$1" && grep -q mi_arenas_purge "$1" || return
  mimalloc_version=$((number / 10000)).$((number / 100 % 100)).$((number % 100))
}

mimalloc_report() {
  if mimalloc_is_there; then
    printf '%-13s %s\n' mimalloc "$mimalloc_state"
  else
    printf '%-13s MISSING (>= %s%s)\n' mimalloc "$mimalloc_minimum" \
      "${IDLESCHED_MIMALLOC_ROOT:+; looked in IDLESCHED_MIMALLOC_ROOT=$IDLESCHED_MIMALLOC_ROOT}"
    return 1
  fi
}

mimalloc_print_by_hand() {
  local mark=' '
  mimalloc_is_there || mark='*'
  printf ' %s %-12s %-7s %s\n' "$mark" mimalloc ">= $mimalloc_minimum" \
    'libmimalloc-dev, where that is new enough, or one of'
  cat <<END
       DEBIAN_MIRROR=URL                fetch it from a mirror of Debian ($mimalloc_release)
       IDLESCHED_MIMALLOC_ROOT=PREFIX   take the one that is installed under PREFIX
       IDLESCHED_ALLOCATOR=system       do without it
     set before scripts/setup, scripts/test or scripts/demo; cmake takes the last two with -D.
END
}

# Gets mimalloc, or gives up.
mimalloc_get() {
  local mirror keyring mirrors
  [[ -z ${IDLESCHED_MIMALLOC_ROOT:-} ]] ||
    give_up "no mimalloc >= $mimalloc_minimum in IDLESCHED_MIMALLOC_ROOT=$IDLESCHED_MIMALLOC_ROOT" \
      "(include/mimalloc.h in there is missing, too old, or lacks mi_theap_quiescent_abandon)"
  if version_is_at_least "$(packages_print_candidate libmimalloc-dev)" "$mimalloc_minimum" &&
    machine_is_root; then
    packages_install libmimalloc-dev
    mimalloc_is_there && return
  fi

  unpack_begin
  ! mimalloc_is_there || return 0
  mirrors=${DEBIAN_MIRROR:-$(unpack_print_mirrors Debian)}
  [[ -n $mirrors ]] ||
    give_up "cannot fetch mimalloc: no mirror of Debian's archive in this machine's apt sources," \
      "and DEBIAN_MIRROR is not set"
  mimalloc_find_keyring
  for mirror in $mirrors; do
    say "fetching mimalloc from $mirror into $deps_dir/mimalloc"
    mimalloc_fetch "$mirror" && return
  done
  give_up_with_log "cannot fetch mimalloc >= $mimalloc_minimum from ${mirrors//$'\n'/, }"
}

# Sets keyring to the file with Debian's archive keys, or gives up.  A machine with Ubuntu need not
# have it, and an old Ubuntu has an old one that knows none of today's keys: so there it comes from
# a newer Ubuntu, whose signature every Ubuntu can check.
mimalloc_find_keyring() {
  local mirror file=usr/share/keyrings/debian-archive-keyring.gpg
  keyring=/$file
  if [[ $machine_id == ubuntu ]]; then
    for mirror in $(unpack_print_mirrors Ubuntu); do
      unpack_fetch keyring "$mirror" resolute universe \
        /usr/share/keyrings/ubuntu-archive-keyring.gpg debian-archive-keyring || continue
      keyring=$unpack_work/keyring/tree/$file
      return
    done
  fi
  [[ -r $keyring ]] ||
    give_up "cannot check Debian's signature on mimalloc: there is no $keyring" \
      "(package debian-archive-keyring)"
}

# Fetches mimalloc from mirror $1 and gives it its place; fails if there is none that runs here.
mimalloc_fetch() {
  local -a library
  local libc_minimum libc_version
  unpack_fetch mimalloc "$1" "$mimalloc_release" main "$keyring" "${mimalloc_packages[@]}" || return
  library=("$unpack_work"/mimalloc/libmimalloc3_*.deb)
  libc_minimum=$(dpkg-deb -f "${library[0]}" Depends | sed -n 's/.*libc6 (>= \([0-9.]*\)).*/\1/p')
  libc_version=$(dpkg-query -W -f '${Version}\n' libc6 | head -n 1)
  if ! version_is_at_least "$libc_version" "$libc_minimum"; then
    log_line "it needs libc6 >= $libc_minimum; this machine has $libc_version"
    return 1
  fi
  if ! mimalloc_header_is_usable "$unpack_work/mimalloc/tree/usr/include/mimalloc.h"; then
    log_line "it is older than $mimalloc_minimum or lacks mi_theap_quiescent_abandon"
    return 1
  fi
  unpack_keep mimalloc "$mimalloc_version"
}
