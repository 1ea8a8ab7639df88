#!/bin/sh
# The first process of the lab: sets up what a Linux has, runs the script and switches off. `mod.rs` fills in the names.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
modprobe=$(command -v modprobe)
export PATH="/run/bin:$PATH" HOME=/run TMPDIR=/run/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mkdir -p "$TMPDIR" /run/bin /run/lock /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
# The console is for the script alone; what is wrong with the kernel is asked for by `dmesg`.
echo 1 >/proc/sys/kernel/printk
stty -opost </dev/console

# The kernel asks this program for the modules that it lacks. IPv6 is one, and loopback has ::1 from its start.
folder={{folder}}
printf '#!/bin/sh\nexec %s -d "%s" "$@"\n' "$modprobe" "$folder" >/run/bin/modprobe
chmod 755 /run/bin/modprobe
echo /run/bin/modprobe >/proc/sys/kernel/modprobe
modprobe ipv6
ip link set lo up

cd "$TMPDIR"
printf '{{begins}}\n'
"$folder/script" </dev/null 2>&1
printf '{{ends}}%s\n' "$?"
echo o >/proc/sysrq-trigger
# The power goes off a moment later; the end of this process would be a panic of the kernel.
sleep 60
