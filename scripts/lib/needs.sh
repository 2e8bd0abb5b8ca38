# SPDX-License-Identifier: MIT
#
# needs.sh - what building and testing need, and how to see whether it is there.
#
# One line per need: what it is, the least version ('-': any), the packages that bring it on
# Debian and Ubuntu, and a function that looks for it in another way.  The packages are looked up
# first, all in one call; the functions run only for what that leaves open.  So tools that were
# installed by hand, as the message of give_up() asks, are accepted on every system.
readonly needs=(
  'C11 compiler|-|gcc libc6-dev|has_compiler'
  'nm|-|binutils|has_nm'
  'CMake|3.21|cmake|has_cmake'
  'Ninja|-|ninja-build|has_ninja'
  'pkg-config|-|pkg-config|has_pkg_config'
  'lua5.4|5.4|lua5.4|has_lua'
  'Lua headers|5.4|liblua5.4-dev|has_lua_headers'
  'libffi|3|libffi-dev|has_libffi'
  'busted|2|lua-busted|has_busted'
  'luacheck|-|lua-check|has_luacheck'
  'gnuplot|5|gnuplot-nox|has_gnuplot'
)

# Each prints the version it found, or nothing.
has_compiler() {
  echo '#include <pthread.h>' | ${CC:-cc} -E - >/dev/null 2>&1 && ${CC:-cc} -dumpversion
}
has_nm() { nm --version 2>/dev/null | sed -n '1s/.* //p'; }
has_cmake() { cmake --version 2>/dev/null | sed -n '1s/.* //p'; }
has_ninja() { ninja --version 2>/dev/null; }
has_pkg_config() { pkg-config --version 2>/dev/null; }
has_lua() { lua5.4 -e 'print(_VERSION:match("[%d.]+"))' 2>/dev/null; }
has_lua_headers() { pkg-config --modversion lua5.4 2>/dev/null; }
has_libffi() { pkg-config --modversion libffi 2>/dev/null; }
has_busted() { busted_run lua5.4 --version 2>/dev/null; }
has_luacheck() { luacheck --version 2>/dev/null | sed -n 's/^Luacheck: //p'; }
has_gnuplot() { gnuplot --version 2>/dev/null | sed -n 's/^gnuplot \([0-9.]*\).*/\1/p'; }

# Sets needs_found to the version found of each need ('' if it is missing or too old) and
# missing_packages to the packages that bring what is missing.
needs_find_missing() {
  local need minimum packages probe package status version what
  local -a all_packages=()
  local -A installed=()
  for need in "${needs[@]}"; do
    IFS='|' read -r what minimum packages probe <<<"$need"
    all_packages+=($packages)
  done
  while read -r package status version; do
    [[ $status == installed ]] && installed[$package]=${version#*:}
  done < <(dpkg-query -W -f '${Package} ${db:Status-Status} ${Version}\n' "${all_packages[@]}" \
    2>/dev/null)

  needs_found=()
  missing_packages=()
  for need in "${needs[@]}"; do
    IFS='|' read -r what minimum packages probe <<<"$need"
    version=${installed[${packages%% *}]:-}
    for package in $packages; do
      [[ -n ${installed[$package]:-} ]] || version=
    done
    [[ -n $version ]] || version=$($probe)
    [[ $minimum == - ]] || version_is_at_least "$version" "$minimum" || version=
    needs_found+=("$version")
    [[ -n $version ]] || missing_packages+=($packages)
  done
}

# Prints a line per need and fails if one is missing.
needs_report() {
  local i what minimum packages probe status=0
  for i in "${!needs[@]}"; do
    IFS='|' read -r what minimum packages probe <<<"${needs[i]}"
    if [[ -z ${needs_found[i]} ]]; then
      [[ $minimum == - ]] && minimum=
      printf '%-13s MISSING (%spackage %s)\n' "$what" "${minimum:+>= $minimum; }" "$packages"
      status=1
    elif [[ $what == busted ]] && ! busted_works; then
      printf '%-13s MISSING (%s is there, but not all of it for Lua 5.4)\n' \
        "$what" "${needs_found[i]}"
      status=1
    else
      printf '%-13s %s\n' "$what" "${needs_found[i]}"
    fi
  done
  return $status
}

# What a person can do without setup: everything that it would have installed.
needs_print_by_hand() {
  local i what minimum packages probe mark
  printf 'What has to be there, by the names of Debian and Ubuntu (* is missing here):\n'
  for i in "${!needs[@]}"; do
    IFS='|' read -r what minimum packages probe <<<"${needs[i]}"
    [[ $minimum == - ]] && minimum=
    mark=' '
    [[ -n ${needs_found[i]} ]] || mark='*'
    printf ' %s %-12s %-7s %s\n' "$mark" "$what" "${minimum:+>= $minimum}" "$packages"
  done
  mimalloc_print_by_hand
}
