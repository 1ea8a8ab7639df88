import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;

/** Java's own client: arguments are the authority's file and the site. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);

        for (String version : new String[] {"TLSv1.2", "TLSv1.3"}) {
            SSLParameters parameters = new SSLParameters();
            parameters.setProtocols(new String[] {version});
            HttpClient client = HttpClient.newBuilder().sslContext(context).sslParameters(parameters).build();
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[1] + "/bytes/10")).build();
            HttpResponse<String> answer = client.send(request, BodyHandlers.ofString());
            System.out.println(answer.sslSession().get().getProtocol() + " " + answer.statusCode());
        }

        HttpClient client = HttpClient.newBuilder().sslContext(context).build();
        List<CompletableFuture<HttpResponse<byte[]>>> answers = new ArrayList<>();
        for (int number = 0; number < 40; number++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[1] + "/bytes/5000")).build();
            answers.add(client.sendAsync(request, BodyHandlers.ofByteArray()));
        }
        int right = 0;
        for (CompletableFuture<HttpResponse<byte[]>> answer : answers) {
            HttpResponse<byte[]> got = answer.get();
            right += got.statusCode() == 200 && got.body().length == 5000 ? 1 : 0;
        }
        System.out.println(right + " answers of 5000 bytes");
        // Its threads would wait for more.
        System.exit(0);
    }
}
