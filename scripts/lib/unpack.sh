# SPDX-License-Identifier: MIT
#
# unpack.sh - unpacks packages of a newer release beside the build, without installing them.
#
# apt does the fetching, because it knows proxies, mirrors and signatures; but with lists, a cache
# and sources of its own, so that the system never learns of the newer release.
#
# A folder in deps_dir is complete or not there: packages are unpacked in a folder of another name
# and get their place by one rename, so a run that is interrupted leaves nothing that a later one
# would believe.

# Opens the working folder, which goes away with the process, and keeps other runs out until then.
unpack_begin() {
  [[ -z ${unpack_work:-} ]] || return 0
  machine_require_supported
  machine_make_deps_dir
  exec {unpack_lock}>"$deps_dir/.lock"
  flock -n "$unpack_lock" || {
    say 'waiting for another run of setup'
    flock "$unpack_lock"
  }
  # What a run that was killed has left.
  rm -rf "$deps_dir"/.unpack.*
  unpack_work=$(mktemp -d "$deps_dir/.unpack.XXXXXX") ||
    give_up "cannot write to the folder $deps_dir"
  trap 'rm -rf "$unpack_work"' EXIT
}

# Gives what was unpacked as $1 its place in deps_dir, marked with the version $2.  What stood there
# is of no use, or nothing would have been unpacked; it leaves by a rename as well.
unpack_keep() {
  printf '%s\n' "$2" >"$unpack_work/$1/tree/VERSION"
  [[ ! -e $deps_dir/$1 ]] || mv -T "$deps_dir/$1" "$unpack_work/$1/replaced"
  mv -T "$unpack_work/$1/tree" "$deps_dir/$1" || give_up "cannot write to the folder $deps_dir"
}

# Fetches packages and unpacks them into $unpack_work/NAME/tree; their files stay in
# $unpack_work/NAME.  Fails if the mirror cannot be reached, its signature is not by a key in the
# keyring, or it has no such package; the log tells which.
#
#   unpack_fetch NAME MIRROR RELEASE COMPONENT KEYRING PACKAGE...
unpack_fetch() {
  local name=$1 mirror=$2 release=$3 component=$4 keyring=$5 package_file
  local folder=$unpack_work/$name
  shift 5
  rm -rf "$folder"
  mkdir -p "$folder/tree"
  printf 'deb [target=Packages signed-by=%s] %s %s %s\n' \
    "$keyring" "$mirror" "$release" "$component" >"$folder/sources.list"
  unpack_configure_apt "$folder"
  cat >>"$folder/apt.conf" <<END
Dir::Etc::sourcelist "$folder/sources.list";
Dir::Etc::sourceparts "/dev/null";
// A mirror that has fallen behind will do: the version is asked for, not the newest one.
Acquire::Check-Valid-Until "false";
END
  (
    cd "$folder" &&
      run_logged apt-get -c apt.conf update &&
      run_logged apt-get -c apt.conf download "$@" &&
      for package_file in *.deb; do
        run_logged dpkg -x "$package_file" tree || exit
      done
  )
}

# Writes $1/apt.conf, by which apt works in folder $1 alone.  apt reads it after the machine's own
# settings, so proxies stay, and what would reach out of the folder or weaken the check goes.
unpack_configure_apt() {
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  : >"$1/status"
  cat >"$1/apt.conf" <<END
#clear APT::Default-Release;
#clear APT::Update;
Dir::State::lists "$1/lists";
Dir::State::status "$1/status";
Dir::Cache "$1/cache";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
// apt's own user need not be able to enter the folder.
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
END
}

# Prints the mirrors of the archive of $1 (Debian or Ubuntu) in the machine's own apt sources.
unpack_print_mirrors() {
  local own=$unpack_work/own
  # Only the lists tell whose archive a mirror holds.  On a machine that has thrown them away, as
  # container images do, a second set of them is fetched into the working folder.
  if [[ ! -d $own && -z $(unpack_print_targets) ]]; then
    unpack_configure_apt "$own"
    run_logged apt-get -c "$own/apt.conf" update
  fi
  # A snapshot of the archive stands still at its date (20250520T000000Z), so it has no newer
  # release.
  unpack_print_targets | sed -n "s/^$1|$1|//p" | grep -v '/[0-9]\{8\}T[0-9]\{6\}Z' | sort -u
}

# Prints archive, label and address of each of the machine's apt sources.
unpack_print_targets() {
  local own=$unpack_work/own/apt.conf
  [[ -r $own ]] || own=/dev/null
  apt-get -c "$own" indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' \
    'Created-By: Packages' 2>/dev/null
}
