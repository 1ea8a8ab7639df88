//! The words of the manual, as the kernel has them.

use super::*;

/// Sections that have everything between them.
const WORDS: &str = "
listen web
    mode direct
    engine ipvs
    bind 192.168.121.2:80-81
    balance leastconn
    stick-table type ip size 1m expire 5m
    stick on src,ipmask(24,64)
    server s1 192.168.121.11 maxconn 1000 minconn 800 weight 3
    server s2 192.168.121.12 disabled

listen names
    mode direct
    engine ipvs
    bind udp@192.168.121.2:53
    bind fwmark@7
    balance source hash-port
    server s1 192.168.121.11

listen far
    mode direct
    engine ipvs
    bind 192.168.121.2:8080
    balance mh fallback
    server t1 10.9.0.1 tunnel
    server t2 10.9.0.2 tunnel gue:6080
    server t3 10.9.0.3 tunnel gre

listen nat
    mode direct
    engine ipvs
    bind 192.168.121.2:443
    balance static-rr
    server n1 10.0.0.9:8443 masquerade
";

/// The services as `ipvsadm` shows them: `source` always goes on to another server, and one in maintenance has weight 0, for which
/// the kernel is told to send clients that would come back to it elsewhere.
const KERNEL: &str = "
-A -f 7 -s sh -b sh-fallback,sh-port
-A -t 192.168.121.2:443 -s wrr
-A -t 192.168.121.2:80 -s wlc -p 300 -M 255.255.255.0
-A -t 192.168.121.2:8080 -s mh -b mh-fallback
-A -t 192.168.121.2:81 -s wlc -p 300 -M 255.255.255.0
-A -u 192.168.121.2:53 -s sh -b sh-fallback,sh-port
-a -f 7 -r 192.168.121.11:0 -g -w 1
-a -t 192.168.121.2:443 -r 10.0.0.9:8443 -m -w 1
-a -t 192.168.121.2:80 -r 192.168.121.11:80 -g -w 3
-a -t 192.168.121.2:80 -r 192.168.121.12:80 -g -w 0
-a -t 192.168.121.2:8080 -r 10.9.0.1:8080 -i -w 1 --tun-type ipip
-a -t 192.168.121.2:8080 -r 10.9.0.2:8080 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-a -t 192.168.121.2:8080 -r 10.9.0.3:8080 -i -w 1 --tun-type gre --tun-nocsum
-a -t 192.168.121.2:81 -r 192.168.121.11:81 -g -w 3
-a -t 192.168.121.2:81 -r 192.168.121.12:81 -g -w 0
-a -u 192.168.121.2:53 -r 192.168.121.11:53 -g -w 1
";

#[test]
fn the_kernel_has_what_the_words_say() {
    lab::inside(|| {
        begin();
        let folder = tempfile::tempdir().unwrap();
        let global = "tune.ipvs.timeout-tcp 10m\ntune.ipvs.timeout-udp 1m\ntune.ipvs.expire-nodest-conn on\n\
                      tune.ipvs.sloppy-tcp on\ntune.ipvs.sync-master eth0 id 7\n";
        let text = format!("global\nstats socket {}/admin.sock level admin\n{global}{WORDS}", folder.path().display());
        let proxy = Proxy::start(&text);
        let expected: Vec<&str> = KERNEL.trim().lines().collect();
        until("the services are in the kernel", || dump().len() >= expected.len());
        assert_eq!(dump(), expected, "{}", proxy.said());
        assert_eq!(said("ipvsadm -Ln --timeout").trim(), "Timeout (tcp tcpfin udp): 600 120 60");
        let sysctls = said(
            "cat /proc/sys/net/ipv4/vs/expire_nodest_conn /proc/sys/net/ipv4/vs/sloppy_tcp \
                            /proc/sys/net/ipv4/vs/expire_quiescent_template",
        );
        assert_eq!(sysctls, "1\n1\n1\n");
        for advice in [
            "net.ipv4.ip_forward is 0: masqueraded packets are not forwarded",
            "sysctl -w net.ipv4.conf.all.send_redirects=0",
        ] {
            assert!(proxy.said().contains(advice), "{}", proxy.said());
        }
        let daemons = said("ipvsadm -Ln --daemon");
        assert!(daemons.contains("master sync daemon (mcast=eth0, syncid=7"), "{daemons}");
        let thresholds = said("ipvsadm -Ln --thresholds");
        assert!(thresholds.contains("192.168.121.11:80            1000       800"), "{thresholds}");
    });
}
