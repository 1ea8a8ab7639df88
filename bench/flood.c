/* Sends UDP packets of many flows to a MAC address, as fast as the kernel takes them.
 *
 *   flood INTERFACE MAC ADDRESS FLOWS PACKETS
 *
 * Flow number N comes from 10.0.0.0/8, with its number in the address, to port 9 of ADDRESS; packets take turns between the flows.
 * A packet has 64 bytes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BATCH = 64, BYTES = 64, IP = 14, UDP = 34 };

static unsigned sum(const unsigned char *bytes, int length)
{
    unsigned total = 0;
    for (int at = 0; at < length; at += 2)
        total += (unsigned)bytes[at] << 8 | bytes[at + 1];
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return ~total & 0xffff;
}

int main(int count, char **words)
{
    static unsigned char packets[BATCH][BYTES];
    static struct mmsghdr messages[BATCH];
    static struct iovec parts[BATCH];
    if (count != 6)
        return 2;
    unsigned char mac[6];
    if (sscanf(words[2], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6)
        return 2;
    unsigned flows = atoi(words[4]), left = atoi(words[5]), number = 0;
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(words[1]), .sll_halen = 6};
    memcpy(to.sll_addr, mac, 6);
    for (int at = 0; at < BATCH; at++) {
        unsigned char *packet = packets[at];
        memcpy(packet, mac, 6);
        memcpy(packet + 6, "\2\0\0\0\0\1\10\0", 8);
        unsigned char ip[20] = {0x45, 0, 0, BYTES - IP, 0, 0, 0x40, 0, 64, 17};
        memcpy(packet + IP, ip, 20);
        inet_pton(AF_INET, words[3], packet + IP + 16);
        unsigned char udp[8] = {0x10, 0, 0, 9, 0, BYTES - UDP};
        memcpy(packet + UDP, udp, 8);
        parts[at] = (struct iovec){packet, BYTES};
        messages[at].msg_hdr = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &parts[at], .msg_iovlen = 1};
    }
    while (left) {
        int batch = left < BATCH ? left : BATCH;
        for (int at = 0; at < batch; at++) {
            unsigned char *ip = packets[at] + IP;
            unsigned source = htonl(0x0a000001 + number++ % flows);
            memcpy(ip + 12, &source, 4);
            ip[10] = ip[11] = 0;
            unsigned check = sum(ip, 20);
            ip[10] = check >> 8;
            ip[11] = check;
        }
        int sent = sendmmsg(fd, messages, batch, 0);
        if (sent < 0) {
            perror("sendmmsg");
            return 1;
        }
        left -= sent;
    }
    return 0;
}
