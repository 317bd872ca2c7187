#!/usr/bin/env bash
# Runs the README's two commands on a bare Debian 12: debootstrap's minbase in a temporary folder, a
# clean clone of HEAD in a path with a space, no locale, nothing of this machine's environment.
# --as-user runs them as a normal user with sudo instead of root; --keep leaves the folder behind.
# Needs root and debootstrap, and about 5 GB in TMPDIR.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

as_user=0
keep=0
for option in "$@"; do
  case $option in
    --as-user) as_user=1 ;;
    --keep) keep=1 ;;
    *) echo "unknown option: $option" >&2; exit 2 ;;
  esac
done

if ((EUID != 0)); then
  echo "needs root: it makes and enters a root file system" >&2
  exit 4
fi
if ! command -v debootstrap >/dev/null; then
  echo "missing: debootstrap" >&2
  exit 4
fi
# In a mount namespace of its own the script leaves no mount behind, however it ends.
if [[ ${ZERO_OWN_MOUNTS:-} != yes ]]; then
  ZERO_OWN_MOUNTS=yes exec unshare --mount --propagation private "scripts/$(basename "$0")" "$@"
fi

root=$(mktemp -d)
clean_up() {
  umount --recursive "$root/run/netns" 2>/dev/null || true
  umount "$root/dev/shm" "$root/sys" "$root/proc" 2>/dev/null || true
  if ((keep)); then echo "kept: $root"; else rm -rf --one-file-system "$root"; fi
}
trap clean_up EXIT

# This machine's own mirror and proxies.
# shellcheck disable=SC2016  # apt expands it
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
chmod 755 "$root"
debootstrap --variant=minbase bookworm "$root" "$mirror"
apt-config dump | grep -iE '^Acquire::[a-z]+::proxy' >"$root/etc/apt/apt.conf.d/90proxy" || true
mount -t proc proc "$root/proc"
# What every running Debian has beside it: MPI looks for processors and for shared memory, and
# somebody, an installer or a container's runtime, has written down who localhost is.
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
mount --bind /sys "$root/sys"
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"

# inside COMMAND...: in the new root, as the chosen user, in the clone.
user=root
home=/root
if ((as_user)); then
  user=visitor
  home=/home/visitor
fi
clone="$home/a clean clone"
inside() {
  # shellcheck disable=SC2016  # expanded inside
  chroot "$root" /usr/bin/env -i HOME="$home" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --reuid="$user" --regid="$user" --init-groups \
    bash -c 'cd "$1" && shift && exec "$@"' inside "$clone" "$@" </dev/null
}
if ((as_user)); then
  chroot "$root" apt-get -q update
  chroot "$root" apt-get -q install -y --no-install-recommends sudo
  chroot "$root" useradd --create-home "$user"
  echo "$user ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$user"
fi
git clone --quiet . "$root$clone"
commit=$(git -C "$root$clone" rev-parse --short HEAD)
chroot "$root" chown -R "$user:$user" "$clone"

summary=()
status=0
# report COMMAND...: runs it inside and notes its time, exit code and last line.
report() {
  local begin=$SECONDS code=0
  echo "== $*"
  inside "$@" 2>&1 | tee "$root/output" || code=${PIPESTATUS[0]}
  summary+=("$* (as $user): exit $code after $((SECONDS - begin)) s: $(tail -n 1 "$root/output")")
  ((code == 0)) || status=1
}
report ./scripts/demo.sh
report ./scripts/test.sh

echo "== Debian $(cat "$root/etc/debian_version") minbase, commit $commit"
printf '%s\n' "${summary[@]}"
exit "$status"
