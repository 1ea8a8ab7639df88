import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Security;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CountDownLatch;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/** Java's TLS as clients and servers, with the lines of peer.go. It begins a KeyUpdate, and asks for one, after each 256 KiB. */
public class Peer {
    static final int BULK = 2 << 20;
    static final int RECORD = 16 << 10;
    static final int BEFORE = 1 + RECORD + BULK;
    static final CountDownLatch goOn = new CountDownLatch(1);

    interface Work {
        void run() throws Exception;
    }

    static synchronized void say(String line) {
        System.out.println(line);
    }

    static void start(String id, Work work) {
        new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                error.printStackTrace();
                say("failed " + id + " " + error);
            }
        }).start();
    }

    /** Sends only half of the next record until it may go on. */
    static class Halving extends Socket {
        String id;
        volatile boolean isArmed;

        @Override
        public OutputStream getOutputStream() throws IOException {
            return new FilterOutputStream(super.getOutputStream()) {
                @Override
                public void write(byte[] bytes, int from, int count) throws IOException {
                    int first = 0;
                    if (isArmed) {
                        isArmed = false;
                        first = count / 2;
                        out.write(bytes, from, first);
                        out.flush();
                        say("half " + id);
                        try {
                            goOn.await();
                        } catch (InterruptedException error) {
                            throw new IOException(error);
                        }
                    }
                    out.write(bytes, from + first, count - first);
                }
            };
        }
    }

    static void agreed(SSLSocket socket, String version, String suite) throws IOException {
        SSLSession session = socket.getSession();
        if (!session.getProtocol().equals(version) || !session.getCipherSuite().equals(suite)) {
            throw new IOException("agreed on " + session.getProtocol() + " " + session.getCipherSuite());
        }
    }

    static void set(SSLSocket socket, String version, String suite) {
        socket.setEnabledProtocols(new String[] {version});
        socket.setEnabledCipherSuites(new String[] {suite});
    }

    static void serve(SSLContext context, String id, String version, String suite) throws Exception {
        ServerSocket listener = new ServerSocket() {
            @Override
            public Socket accept() throws IOException {
                Halving socket = new Halving();
                implAccept(socket);
                return socket;
            }
        };
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        say("port " + id + " " + listener.getLocalPort());
        start(id, () -> {
            while (true) {
                Halving wire = (Halving) listener.accept();
                wire.id = id;
                start(id, () -> echo(context, wire, version, suite));
            }
        });
    }

    static void echo(SSLContext context, Halving wire, String version, String suite) throws Exception {
        boolean isResumed;
        long accepted = System.currentTimeMillis();
        try (wire; SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(wire, null, true)) {
            set(socket, version, suite);
            socket.startHandshake();
            agreed(socket, version, suite);
            isResumed = socket.getSession().getCreationTime() < accepted;
            byte[] room = new byte[RECORD];
            int received = 0;
            // The end is only one if the other end has said so.
            for (int count; (count = socket.getInputStream().read(room)) >= 0; ) {
                wire.isArmed = received == BEFORE;
                received += count;
                socket.getOutputStream().write(room, 0, count);
            }
        }
        say("ended " + wire.id + (isResumed ? ", resumed" : ""));
    }

    /** Numbers what is sent, and compares what comes back. */
    static class Conversation {
        final SSLSocket socket;
        final DataInputStream input;
        int sent;
        int got;

        Conversation(SSLSocket socket) throws IOException {
            this.socket = socket;
            input = new DataInputStream(socket.getInputStream());
        }

        static byte[] numbered(int from, int count) {
            byte[] bytes = new byte[count];
            for (int at = 0; at < count; at++) {
                int place = from + at;
                bytes[at] = (byte) (place ^ place >> 8 ^ place >> 16);
            }
            return bytes;
        }

        void send(int count) throws IOException {
            socket.getOutputStream().write(numbered(sent, count));
            sent += count;
        }

        void expect(int count) throws IOException {
            byte[] bytes = new byte[count];
            input.readFully(bytes);
            if (!Arrays.equals(bytes, numbered(got, count))) {
                throw new IOException("other bytes behind " + got);
            }
            got += count;
        }

        void exchange(String id, int count) throws Exception {
            Thread sender = new Thread(() -> {
                try {
                    send(count);
                } catch (IOException error) {
                    say("failed " + id + " " + error);
                }
            });
            sender.start();
            expect(count);
            sender.join();
        }

        void end() throws IOException {
            socket.shutdownOutput();
            if (input.read() >= 0) {
                throw new IOException("no end, but a byte");
            }
            socket.close();
        }
    }

    static void connect(SSLContext context, String id, int port, String version, String suite) throws Exception {
        Conversation[] opened = new Conversation[1];
        Halving wire = open(context, id, port, version, suite, opened);
        Conversation first = opened[0];
        for (int count : new int[] {1, RECORD, BULK}) {
            first.exchange(id, count);
        }
        first.send(777);
        wire.isArmed = true;
        first.send(778);
        first.expect(777);
        first.expect(778);
        first.exchange(id, BULK);
        first.end();
        // Both sides of the last one are resumed.
        for (int number = 0; number < 2; number++) {
            open(context, id, port, version, suite, opened);
            opened[0].exchange(id, 1);
            opened[0].exchange(id, RECORD);
            opened[0].end();
        }
        say("done " + id);
    }

    static Halving open(SSLContext context, String id, int port, String version, String suite, Conversation[] opened) throws Exception {
        Halving wire = new Halving();
        wire.id = id;
        wire.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        wire.setSoTimeout(60_000);
        SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(wire, "a.example", port, true);
        set(socket, version, suite);
        socket.startHandshake();
        agreed(socket, version, suite);
        opened[0] = new Conversation(socket);
        return wire;
    }

    static SSLContext context(Path folder) throws Exception {
        CertificateFactory certificates = CertificateFactory.getInstance("X.509");
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (var file = Files.newInputStream(folder.resolve("ca.pem"))) {
            trusted.setCertificateEntry("ca", certificates.generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyStore own = KeyStore.getInstance(KeyStore.getDefaultType());
        own.load(null, null);
        for (String[] kind : new String[][] {{"EC", "ec.pem"}, {"RSA", "rsa.pem"}}) {
            String text = Files.readString(folder.resolve(kind[1]));
            int from = text.indexOf("-----BEGIN PRIVATE KEY-----");
            int until = text.indexOf("-----END PRIVATE KEY-----");
            byte[] bytes = Base64.getMimeDecoder().decode(text.substring(from + 27, until));
            PrivateKey key = KeyFactory.getInstance(kind[0]).generatePrivate(new PKCS8EncodedKeySpec(bytes));
            String rest = text.substring(0, from) + text.substring(until + 25);
            Certificate[] chain =
                certificates.generateCertificates(new java.io.ByteArrayInputStream(rest.strip().getBytes())).toArray(new Certificate[0]);
            own.setKeyEntry(kind[0], key, new char[0], chain);
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    public static void main(String[] arguments) throws Exception {
        Security.setProperty("jdk.tls.keyLimits", "AES/GCM/NoPadding KeyUpdate 2^18, ChaCha20-Poly1305 KeyUpdate 2^18");
        SSLContext context = context(Path.of(arguments[0]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "serve" -> serve(context, words[1], words[2], words[3]);
                case "connect" -> start(
                    words[1], () -> connect(context, words[1], Integer.parseInt(words[2]), words[3], words[4]));
                case "go" -> goOn.countDown();
                default -> throw new IOException(line);
            }
        }
        // The threads of servers would wait for more.
        System.exit(0);
    }
}
