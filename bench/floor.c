/* The least that a proxy asks of the kernel: system calls of the benchmarks' scenarios, and next to nothing between them.
 *
 *   floor [-p LISTEN_PORT]... -o ORIGIN_PORT [-l SYSLOG_PORT] [-q CONNECTIONS] [-n SERVERS -c CHECKED_PORT [-t MILLISECONDS] [-h] [-e]]
 *
 * Forwards what clients send to kept connections of the origin, and back: two recv and two send a request, and a share of an epoll_wait. It reads
 * no header, chooses no server, keeps no time and counts nothing; it trusts that a request and a response arrive in one piece. So what it costs
 * is what no proxy that uses sockets can save.
 *
 *   -l  also sends a line of 200 bytes for each response, by a connected UDP socket.
 *   -q  asks the origin itself for three seconds, over so many kept connections at a time, and prints what a request cost: what is left of a
 *       proxy whose clients' side is batched, as by HTTP/2. One send and one recv a request.
 *   -n  also connects to each of so many addresses of 127.0.0.0/8 once a second, by sockets that pass from check to check, and resets the connection.
 *       Those due within -t milliseconds (default 5) are started together. With -h it sends a request and reads the response; without it the
 *       handshake is left incomplete, as haproxy does. -e: each check has its own socket, opened, watched and closed.
 *
 * bench/run --floor, bench/http2 --floor and bench/checks --floor compile and measure it beside the proxies.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ENDS_MAX = 65536, EVENTS = 256, BUFFER = 16384, LINE = 200 };
enum { ASK_MS = 3000 };
enum kind { CLOSED, LISTENER, CLIENT, SERVER, CHECK, ASKED };

/* By descriptor. */
static struct end { enum kind kind; int peer; } ends[ENDS_MAX];
static int idle[ENDS_MAX], idle_count, passed[ENDS_MAX], passed_count;
static int set, log_socket = -1, origin_port, checked_port, servers, is_http, has_own_socket, together_ms = 5;
static char buffer[BUFFER], line[LINE];
static int asked;
static unsigned long answered;
static const char asking[] = "GET /small HTTP/1.1\r\nHost: bench\r\n\r\n";
static const char request[] = "GET / HTTP/1.0\r\n\r\n";

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static struct sockaddr_in address(uint32_t host, int port)
{
    struct sockaddr_in found = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(host) };
    return found;
}

static int open_socket(enum kind kind, int type)
{
    /* Connections to the origin are few: each is waited for. */
    int fd = socket(AF_INET, type | (kind == SERVER ? 0 : SOCK_NONBLOCK) | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || fd >= ENDS_MAX)
        die("socket");
    if (type == SOCK_STREAM)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ends[fd].kind = kind;
    ends[fd].peer = -1;
    return fd;
}

static void watch(int fd, unsigned events)
{
    struct epoll_event event = { .events = events, .data.fd = fd };
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl");
}

static void start_listening(int port)
{
    int fd = open_socket(LISTENER, SOCK_STREAM), on = 1;
    struct sockaddr_in at = address(INADDR_LOOPBACK, port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 4096) < 0)
        die("listen");
    watch(fd, EPOLLIN);
}

static int server_connection(void)
{
    struct sockaddr_in to = address(INADDR_LOOPBACK, origin_port);
    if (idle_count)
        return idle[--idle_count];
    int fd = open_socket(SERVER, SOCK_STREAM);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    watch(fd, EPOLLIN | EPOLLET);
    return fd;
}

static void close_end(int fd)
{
    ends[fd].kind = CLOSED;
    for (int at = 0; at < idle_count; at++)
        if (idle[at] == fd)
            idle[at--] = idle[--idle_count];
    close(fd);
}

static void relay(int fd)
{
    struct end *end = &ends[fd];
    ssize_t count = recv(fd, buffer, BUFFER, MSG_DONTWAIT);
    if (count <= 0) {
        if (count == 0)
            close_end(fd);
        return;
    }
    if (end->kind == CLIENT) {
        int to = server_connection();
        ends[to].peer = fd;
        send(to, buffer, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {
        send(end->peer, buffer, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        idle[idle_count++] = fd;
        if (log_socket >= 0)
            send(log_socket, line, LINE, MSG_NOSIGNAL);
    }
}

static void start_check(unsigned number)
{
    uint32_t host = 127u << 24 | (1 + number / 62500) << 16 | number / 250 % 250 << 8 | (number % 250 + 1);
    struct sockaddr_in to = address(host, checked_port);
    struct linger reset = { .l_onoff = 1 };
    int fd, on = 1, off = 0;
    if (passed_count) {
        fd = passed[--passed_count];
    } else {
        fd = open_socket(CHECK, SOCK_STREAM);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        /* The acknowledgement that completes the handshake waits. */
        if (has_own_socket)
            setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
        else
            setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &on, sizeof on);
        if (!has_own_socket)
            watch(fd, EPOLLIN | EPOLLOUT | EPOLLET);
    }
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
        die("connect");
    if (has_own_socket)
        watch(fd, EPOLLIN | EPOLLOUT | EPOLLET);
    ends[fd].peer = 0;
}

static void check(int fd, unsigned events)
{
    static const struct sockaddr nobody = { .sa_family = AF_UNSPEC };
    if (ends[fd].peer < 0)
        return;
    if (is_http && ends[fd].peer == 0 && !(events & EPOLLIN)) {
        ends[fd].peer = 1;
        send(fd, request, sizeof request - 1, MSG_NOSIGNAL);
        return;
    }
    if (is_http)
        recv(fd, buffer, BUFFER, MSG_DONTWAIT);
    ends[fd].peer = -1;
    if (has_own_socket) {
        close_end(fd);
        return;
    }
    if (connect(fd, &nobody, sizeof nobody) < 0)
        die("disconnect");
    passed[passed_count++] = fd;
}

static void ask(int fd)
{
    if (send(fd, asking, sizeof asking - 1, MSG_NOSIGNAL) < 0)
        die("send");
}

static void start_asking(void)
{
    for (int at = 0; at < asked; at++) {
        int fd = server_connection();
        ends[fd].kind = ASKED;
        ask(fd);
    }
}

static void take_answer(int fd)
{
    if (recv(fd, buffer, BUFFER, MSG_DONTWAIT) <= 0)
        die("the origin does not answer");
    answered++;
    ask(fd);
}

static double microseconds(struct timeval time)
{
    return time.tv_sec * 1e6 + time.tv_usec;
}

static int say_what_it_cost(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double user = microseconds(used.ru_utime), system = microseconds(used.ru_stime);
    printf("%lu requests, %.2f us of CPU each (%.2f user, %.2f system)\n", answered, (user + system) / answered,
           user / answered, system / answered);
    return 0;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

int main(int count, char **words)
{
    struct epoll_event events[EVENTS];
    set = epoll_create1(EPOLL_CLOEXEC);
    memset(line, 'x', LINE);
    for (int option; (option = getopt(count, words, "p:o:l:q:n:c:t:he")) > 0;) {
        int number = optarg ? atoi(optarg) : 0;
        struct sockaddr_in to = address(INADDR_LOOPBACK, number);
        switch (option) {
        case 'p': start_listening(number); break;
        case 'o': origin_port = number; break;
        case 'l':
            log_socket = open_socket(CLOSED, SOCK_DGRAM);
            if (connect(log_socket, (struct sockaddr *)&to, sizeof to) < 0)
                die("connect");
            break;
        case 'q': asked = number; break;
        case 'n': servers = number; break;
        case 'c': checked_port = number; break;
        case 't': together_ms = number; break;
        case 'h': is_http = 1; break;
        case 'e': has_own_socket = 1; break;
        default: return 2;
        }
    }
    if (together_ms < 1 || (!origin_port && !servers))
        return 2;
    uint64_t begun = now_ms(), started = 0;
    start_asking();
    for (;;) {
        uint64_t elapsed = now_ms() - begun, slot = elapsed / together_ms;
        if (asked && elapsed >= ASK_MS && answered)
            return say_what_it_cost();
        for (uint64_t due = slot * together_ms * servers / 1000; started < due; started++)
            start_check(started % servers);
        int wait = servers ? (int)((slot + 1) * together_ms - elapsed) : -1;
        int found = epoll_wait(set, events, EVENTS, wait);
        for (int at = 0; at < found; at++) {
            int fd = events[at].data.fd, client;
            switch (ends[fd].kind) {
            case LISTENER:
                while ((client = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                    int on = 1;
                    if (client >= ENDS_MAX)
                        die("too many connections");
                    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    ends[client].kind = CLIENT;
                    watch(client, EPOLLIN | EPOLLET);
                }
                break;
            case CLIENT:
            case SERVER: relay(fd); break;
            case CHECK: check(fd, events[at].events); break;
            case ASKED: take_answer(fd); break;
            case CLOSED: break;
            }
        }
    }
}
