# SPDX-License-Identifier: MIT
#
# busted.sh - runs the distribution's busted with Lua 5.4, and completes it where parts of it are
# packaged for older Luas only (Ubuntu 22.04).
#
# Uses deps_dir.

readonly busted_release=noble
readonly busted_parts=(lua-system lua-cliargs lua-say lua-mediator)

# Runs busted in the interpreter $1, with the arguments that follow.  Its own command would start
# another Lua (Debian's) or is no Lua file at all (luarocks'); the module behind it is the same.
busted_run() (
  interpreter=$1
  shift
  busted_export_paths
  exec "$interpreter" -e 'require("busted.runner")({ standalone = false })' /dev/null "$@"
)

# Lets Lua look for modules in what busted_complete() unpacked, after all other places.
busted_export_paths() {
  local modules=$deps_dir/lua/usr/share/lua/5.4 libraries
  [[ -d $modules ]] || return 0
  libraries=$(echo "$deps_dir"/lua/usr/lib/*/lua/5.4)
  busted_extend_path LUA_PATH "$modules/?.lua;$modules/?/init.lua"
  busted_extend_path LUA_CPATH "$libraries/?.so"
}

# Appends $2 to the search path $1, or to the one for Lua 5.4 alone if that is set, because then
# Lua ignores the other.
busted_extend_path() {
  local name=$1 path
  [[ -z $(printenv "${name}_5_4") ]] || name=${name}_5_4
  path=$(printenv "$name") || path=';;'
  [[ $path == *';;' ]] || path+=';'
  export "$name=$path$2"
}

busted_works() {
  busted_run lua5.4 --version >/dev/null 2>&1
}

busted_complete() {
  local mirror keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  unpack_begin
  ! busted_works || return 0
  [[ $machine_id == ubuntu ]] ||
    give_up "busted is there, but does not run with lua5.4:" \
      "$(busted_run lua5.4 --version 2>&1 | head -n 1)"
  say "unpacking what busted lacks for Lua 5.4 into $deps_dir/lua"
  for mirror in $(unpack_print_mirrors Ubuntu); do
    unpack_fetch lua "$mirror" "$busted_release" universe "$keyring" "${busted_parts[@]}" ||
      continue
    unpack_keep lua "$busted_release"
    busted_works && return
  done
  give_up_with_log "cannot complete busted for Lua 5.4 from ${mirror:-Ubuntu: no mirror found}"
}
