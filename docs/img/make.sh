#!/usr/bin/env bash
# Makes the pictures of this folder anew, from the dashboard in a real browser; takes a minute.
#
# The test that drives the browser takes a picture of every page, by day, by night and on a phone; the pages of the
# documentation show three of them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT
cd "$here/../.."
LONGSHORE_PICTURES=$all cargo test --quiet --package longshore-cli --test dashboard
cp "$all/rollout.png" "$here/rollout.png"
cp "$all/dark-overview.png" "$here/dark.png"
cp "$all/phone-deployment.png" "$here/phone.png"
