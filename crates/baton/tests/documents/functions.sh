# What comments in documents use: commands of these names stand behind `test:` and `ready:`.

# Repeats a command until it succeeds.
soon() {
    until "$@" >/dev/null 2>&1; do sleep 0.02; done
}

# Ends all processes of these programs.
end() {
    kill $(pidof "$@")
    while pidof "$@" >/dev/null; do sleep 0.02; done
}

# Succeeds when a server responds to `curl` with these arguments.
serves() {
    curl -fsSk -o /dev/null "$@"
}

# Starts test servers at these places, the last of which is NAME=PORT or PORT.
origins() {
    /usr/sbin/baton origin "$@" >/dev/null &
    soon serves "http://127.0.0.1:${!##*=}/"
}

# Writes a program that runs these lines.
program() {
    printf '#!/bin/bash\n%s\n' "$2" >"$1"
    chmod +x "$1"
}

# Installs a Rust toolchain for `make build` and `make demo`, of which a release build is the program under test: a real one takes minutes.
toolchain() {
    program /usr/local/bin/rustc 'echo "rustc 1.88.0"'
    program /usr/local/bin/cargo 'built=target/release/baton
case "$*" in
"build --release --locked --package baton --features baton/bpf") cp --remove-destination /usr/sbin/baton $built ;;
"run --quiet --release --locked --package baton --features baton/bpf -- "*) exec $built "${@:10}" ;;
*) exit 101 ;;
esac'
}

# Prints a configuration with a frontend at this address that responds by itself.
responds_at() {
    printf 'defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n'
    printf 'frontend web\n bind %s\n http-request return status 200\n' "$1"
}

# Writes a certificate for localhost with its key.
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=localhost -keyout key -out crt
    cat crt key >"$1"
}

# Debian's haproxy serves by its own file, with a service that is added to it.
haproxy_serves() {
    sed -i 's/ level admin$/& expose-fd listeners/' /etc/haproxy/haproxy.cfg
    printf 'frontend web\n bind :80\n default_backend app\nbackend app\n server s1 127.0.0.1:9000 check\n' >>/etc/haproxy/haproxy.cfg
    origins 9000
    haproxy -D -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid
    soon serves http://localhost/
}

# The program that the pid file of haproxy names.
serving() {
    cat "/proc/$(cat /run/haproxy.pid)/comm"
}

# Succeeds when rsyslog has written a line with this text, of the process that the pid file of haproxy names or of its workers.
logged() {
    local pids
    pids=$(cat /run/haproxy.pid; pgrep -P "$(cat /run/haproxy.pid)" || true)
    grep -F -f <(printf 'haproxy[%s]:\n' $pids) /var/log/haproxy.log | grep -qF "$1"
}

# Succeeds when a unit of systemd has ended in order.
inactive() {
    [ "$(systemctl is-active "$1")" = inactive ]
}
