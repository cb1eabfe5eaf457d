#!/bin/sh
# Run the core suite on other Pythons: those on the PATH, and Debian's newer ones, which debootstrap brings into a folder.
#
#     tests/pythons.sh "python3.12 python3.13" "trixie sid"
#
# The first list names interpreters; one that is not there is skipped by name. The second names Debian releases, and needs
# root and debootstrap. GRAPHQUILT_TESTS chooses the tests; by default all that need no extra.
set -u
place=${GRAPHQUILT_PYTHONS:-build/pythons}
tools="pytest pytest-xdist hypothesis psutil"
tests=${GRAPHQUILT_TESTS:-"-m 'not slow and not browser' -n ${WORKERS:-2} --dist worksteal"}
mkdir -p "$place"
failed=0

for python in $1; do
  if ! "$python" --version >/dev/null 2>&1; then echo "test-pythons: $python: skipped, not installed"; continue; fi
  venv="$place/$python"
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install -q -e . $tools &&
    eval "OMP_NUM_THREADS=1 $venv/bin/python -m pytest $tests" &&
    echo "test-pythons: $python: passed" || { echo "test-pythons: $python: FAILED"; failed=1; }
done

for release in ${2:-}; do
  if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "test-pythons: $release: skipped, needs root and debootstrap"
    continue
  fi
  root="$place/$release"
  if [ ! -x "$root/usr/bin/python3" ]; then
    script=/usr/share/debootstrap/scripts/$release
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid  # a release newer than this debootstrap
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,git "$release" "$root" \
      http://deb.debian.org/debian "$script" >"$place/$release.log" 2>&1 ||
      { echo "test-pythons: $release: skipped, debootstrap failed ($place/$release.log)"; continue; }
  fi
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do [ -e "$file" ] && cp "$file" "$root$file"; done
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  mount --bind /proc "$root/proc"
  rm -rf "$root/graphquilt" && mkdir "$root/graphquilt"
  git archive HEAD | tar -x -C "$root/graphquilt"
  chroot "$root" sh -c "cd /graphquilt && ([ -x /venv/bin/python ] || python3 -m venv /venv) &&
    /venv/bin/pip install -q -e . $tools && OMP_NUM_THREADS=1 /venv/bin/python -m pytest $tests" &&
    echo "test-pythons: $release, $(chroot "$root" python3 --version): passed" ||
    { echo "test-pythons: $release: FAILED"; failed=1; }
  umount "$root/proc"
done
exit $failed
