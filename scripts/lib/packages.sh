# shellcheck shell=bash
# Packages by name: which are missing, and how to get them.

# packages_of SECTION: the names in that section of packages.txt.
packages_of() {
  awk -v wanted="[$1]" '/^\[/ { inside = ($0 == wanted); next } inside && /^[^#]/ { print $1 }' \
    scripts/packages.txt
}

is_installed() {
  [[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

missing_of() {
  local package
  for package in "$@"; do
    is_installed "$package" || printf '%s\n' "$package"
  done
}

give_up_on() {
  printf 'missing, and not to be had here: %s (%s)\n' "$1" "$2" >&2
  exit 4
}

# need_packages SECTION...: installs what is missing, or says so in one line and exits with 4.
need_packages() {
  local section wanted=() missing=() as_root=() log
  for section in "$@"; do
    mapfile -t -O "${#wanted[@]}" wanted < <(packages_of "$section")
  done
  if ! command -v dpkg-query >/dev/null; then
    give_up_on "dpkg-query" "this script knows Debian; it needs: ${wanted[*]}"
  fi
  mapfile -t missing < <(missing_of "${wanted[@]}")
  ((${#missing[@]})) || return 0

  if ((EUID != 0)); then
    command -v sudo >/dev/null || give_up_on "${missing[*]}" "neither root nor sudo"
    sudo -v || give_up_on "${missing[*]}" "sudo refused"
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)

  log=$(mktemp)
  echo "installing: ${missing[*]}" >&2
  with_progress "installing" "$log" install_packages "${missing[@]}" || true

  mapfile -t missing < <(missing_of "${missing[@]}")
  if ((${#missing[@]})); then
    give_up_on "${missing[*]}" "$(grep '^E: ' "$log" | head -n 1 || true)"
  fi
  rm -f "$log"
}

# Uses as_root of need_packages.
install_packages() {
  "${as_root[@]}" update
  "${as_root[@]}" install -y --no-install-recommends "$@"
}
