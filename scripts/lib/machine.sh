# SPDX-License-Identifier: MIT
#
# machine.sh - what kind of machine this is, and what setup may change on it.

readonly debian_minimum=12 ubuntu_minimum=22.04

# True if version $1 is at least version $2.  $2 is a number with dots; of $1 only such a number
# at its beginning counts, so a package's "3.25.1-1" is 3.25.1.
version_is_at_least() {
  local -a have want
  local i
  IFS=. read -r -a have <<<"${1%%[!0-9.]*}"
  IFS=. read -r -a want <<<"$2"
  for i in "${!want[@]}"; do
    ((10#0${have[i]:-} > 10#0${want[i]})) && return 0
    ((10#0${have[i]:-} < 10#0${want[i]})) && return 1
  done
  return 0
}

# Sets machine_id ("debian", "ubuntu", ...), machine_version and machine_name.
# IDLESCHED_OS_RELEASE is for the specs of setup, which have to be on many systems.
machine_identify() {
  local os_release=${IDLESCHED_OS_RELEASE:-/etc/os-release}
  machine_id='' machine_version='' machine_name='this system'
  [[ -r $os_release ]] || return 0
  # The file is a shell script: a subshell keeps its many variables out of this one.
  IFS='|' read -r machine_id machine_version machine_name < <(
    . "$os_release"
    printf '%s|%s|%s\n' "${ID:-}" "${VERSION_ID:-}" "${PRETTY_NAME:-${ID:-this system}}"
  )
}

# Gives up unless apt can be relied on to have every package in the version needed.
machine_require_supported() {
  local minimum=
  machine_identify
  case $machine_id in
    debian) minimum=$debian_minimum ;;
    ubuntu) minimum=$ubuntu_minimum ;;
  esac
  # A testing or unstable Debian has no version; it is newer than every number.
  if [[ -z $minimum ]] || ! version_is_at_least "${machine_version:-999}" "$minimum"; then
    give_up "cannot install on $machine_name, only on Debian >= $debian_minimum and" \
      "Ubuntu >= $ubuntu_minimum"
  fi
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
    give_up "cannot install on $machine_name: apt-get and dpkg-query are not both in PATH ($PATH)"
}

# True if this process may act as root without anybody being asked.
machine_is_root() {
  ((EUID == 0)) || sudo -n true 2>/dev/null
}

# Sets as_root to the words that go before a command that needs root, or gives up.
# A password is asked for here, not in the middle of a logged command; sudo asks on the terminal
# itself, so it does not matter where the output goes.
machine_become_root() {
  as_root=()
  ((EUID == 0)) && return
  local reason="installing what is missing needs root, but"
  command -v sudo >/dev/null || give_up "$reason there is no sudo, and this is user $(id -un)"
  sudo -n true 2>/dev/null || sudo -p 'setup: the password of %p, to install packages: ' true ||
    give_up "$reason sudo refuses it to user $(id -un)"
  as_root=(sudo)
}

# Makes the folder for what is unpacked and for the log, which tells of one run only; or gives up.
machine_make_deps_dir() {
  [[ -z ${machine_deps_dir_is_made:-} ]] || return 0
  machine_deps_dir_is_made=yes
  { mkdir -p "$deps_dir" && : >"$log"; } 2>/dev/null ||
    give_up "cannot write to the folder $deps_dir"
}

# Whoever owns the sources has to be able to build in them, also after "sudo scripts/setup".
machine_give_back() {
  if ((EUID == 0)) && [[ -d $deps_dir ]] &&
    [[ $(stat -c %u "$deps_dir") != "$(stat -c %u "$root")" ]]; then
    chown -R --reference="$root" "$deps_dir"
    chown --reference="$root" "${deps_dir%/*}"
  fi
}
