# SPDX-License-Identifier: MIT
#
# packages.sh - installs packages of the machine's own distribution with apt.

# Installs the packages named, or gives up.
packages_install() {
  machine_require_supported
  machine_become_root
  machine_make_deps_dir
  say "installing $* (log: $log)"
  packages_update_lists
  run_logged "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y \
    --no-install-recommends -o DPkg::Lock::Timeout=600 "$@" ||
    give_up_with_log "apt-get cannot install the packages$packages_update_trouble"
}

# Once per run.  A failure is no reason to stop: a single foreign source that is out of reach
# fails it, and the lists may be good enough all the same.  But it may be why installing fails.
packages_update_lists() {
  [[ -z ${packages_update_trouble+done} ]] || return 0
  packages_update_trouble=
  run_logged "${as_root[@]}" apt-get -o APT::Update::Error-Mode=any update ||
    packages_update_trouble=', and could not update its lists before (is there a network?)'
}

# Prints the version of package $1 that apt would install, without its epoch; '' for none.
packages_print_candidate() {
  apt-cache show --no-all-versions "$1" 2>/dev/null | sed -n 's/^Version: \([0-9]*:\)\?//p'
}
