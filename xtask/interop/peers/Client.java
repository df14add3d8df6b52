import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * The client of Java: HttpClient with HTTP/1.1, with HTTP/2 by ALPN, and in clear text with `Upgrade: h2c`. Each line
 * of the input is a request, as words NAME=VALUE between tabs; each line of the output what came of it, as a JSON
 * object of texts.
 *
 * <p>Client AUTHORITY
 */
final class Client {
    private static final byte[] BLOCK = new byte[251 * 256];
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();
    /** HttpClient fails instead of waiting when a server allows no further stream; none here allows fewer. */
    private static final int PARALLEL = 90;

    private final Map<String, String> words = new TreeMap<>();
    private final List<String[]> headers = new ArrayList<>();

    static {
        for (int index = 0; index < BLOCK.length; index++) {
            BLOCK[index] = (byte) (index % 251);
        }
    }

    /** Bytes that repeat only after 251 of them, so that a shifted copy differs. */
    private static final class Pattern extends InputStream {
        private final long size;
        private long at;

        Pattern(long size) {
            this.size = size;
        }

        @Override
        public int read() {
            return at == size ? -1 : BLOCK[(int) (at++ % 251)] & 0xff;
        }

        @Override
        public int read(byte[] into, int offset, int most) {
            if (at == size) {
                return -1;
            }
            int from = (int) (at % 251);
            int count = (int) Math.min(Math.min(most, BLOCK.length - from), size - at);
            System.arraycopy(BLOCK, from, into, offset, count);
            at += count;
            return count;
        }
    }

    private Client(String line) {
        for (String word : line.split("\t")) {
            int end = word.indexOf('=');
            String name = word.substring(0, end);
            String value = word.substring(end + 1);
            if (name.equals("header")) {
                headers.add(value.split(": ", 2));
            } else {
                words.put(name, value);
            }
        }
    }

    private boolean has(String name) {
        return words.containsKey(name);
    }

    private HttpRequest request(String url) {
        BodyPublisher body = BodyPublishers.noBody();
        if (has("body")) {
            long size = Long.parseLong(words.get("body"));
            body = BodyPublishers.ofInputStream(() -> new Pattern(size));
            if (size == 0) {
                body = BodyPublishers.noBody();
            } else if (!has("chunked")) {
                body = BodyPublishers.fromPublisher(body, size);
            }
        }
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url)).method(words.get("method"), body);
        headers.forEach(header -> request.header(header[0], header[1]));
        if (has("expect")) {
            request.expectContinue(true);
        }
        return request.build();
    }

    private void read(InputStream body, Map<String, String> found) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        StringBuilder kept = new StringBuilder();
        byte[] buffer = new byte[64 * 1024];
        long length = 0;
        if (has("slow")) {
            Thread.sleep(500);
        }
        for (int count = body.read(buffer); count >= 0; count = body.read(buffer)) {
            digest.update(buffer, 0, count);
            length += count;
            found.put("length", Long.toString(length));
            if (has("text")) {
                kept.append(new String(buffer, 0, count, StandardCharsets.ISO_8859_1));
            }
            if (has("slow")) {
                Thread.sleep(3);
            }
        }
        found.put("length", Long.toString(length));
        found.put("sha256", HexFormat.of().formatHex(digest.digest()));
        if (has("text")) {
            found.put("text", kept.toString());
        }
    }

    private void ask(HttpClient client, String url, Map<String, String> found) throws Exception {
        HttpResponse<InputStream> reply = client.send(request(url), BodyHandlers.ofInputStream());
        found.put("status", Integer.toString(reply.statusCode()));
        found.put("version", reply.version() == HttpClient.Version.HTTP_2 ? "2" : "1");
        reply.headers().map().forEach((name, values) -> {
            if (!name.startsWith(":")) {
                found.put("h." + name.toLowerCase(), String.join(" | ", values));
            }
        });
        try (InputStream body = reply.body()) {
            read(body, found);
        }
    }

    private static String classOf(Throwable error) {
        String text = String.valueOf(error);
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            text += " " + cause;
        }
        String[][] classes = {
            {"reset by peer", "reset"}, {"Connection reset", "reset"}, {"Broken pipe", "reset"}, {"GOAWAY", "goaway"},
            {"RST_STREAM", "stream reset"}, {"EOF", "eof"}, {"closed", "eof"}, {"no bytes", "eof"},
        };
        for (String[] pair : classes) {
            if (text.contains(pair[0])) {
                return pair[1];
            }
        }
        return "other: " + text;
    }

    private Map<String, String> limited(HttpClient client, String url) {
        Map<String, String> found = new TreeMap<>();
        Future<?> done = THREADS.submit(() -> {
            ask(client, url, found);
            return null;
        });
        try {
            done.get(Long.parseLong(words.get("limit")), TimeUnit.SECONDS);
        } catch (TimeoutException error) {
            done.cancel(true);
            found.put("error", "timeout");
        } catch (ExecutionException error) {
            found.put("error", classOf(error.getCause()));
        } catch (InterruptedException error) {
            found.put("error", "interrupted");
        }
        return found;
    }

    private Map<String, String> many(HttpClient client) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(PARALLEL);
        Map<String, Integer> counts = new TreeMap<>();
        List<Future<Map<String, String>>> all = new ArrayList<>();
        for (int left = Integer.parseInt(words.get("repeat")); left > 0; left--) {
            all.add(threads.submit(() -> limited(client, words.get("url"))));
        }
        for (Future<Map<String, String>> one : all) {
            Map<String, String> found = one.get();
            String outcome = List.of("status", "sha256", "error").stream()
                .map(key -> found.getOrDefault(key, "")).reduce("", (line, word) -> (line + " " + word).trim());
            counts.merge(outcome, 1, Integer::sum);
        }
        threads.shutdown();
        List<String> lines = new ArrayList<>();
        counts.forEach((outcome, count) -> lines.add(count + " x " + outcome));
        return new TreeMap<>(Map.of("outcomes", String.join("; ", lines)));
    }

    private Map<String, String> run(SSLContext tls) throws Exception {
        String mode = words.get("mode");
        boolean isH1 = mode.startsWith("java-h1");
        // It has no trailers, and reads an HTTP/1.1 reply after it has sent the body. Over HTTP/2 it waits for ever
        // for the window of a body that is refused, and does not know what to do with an interim reply.
        boolean failsOnH2 = mode.equals("java-h2") && (has("expect") || has("then"));
        if (has("trailer") || has("duplex") && mode.startsWith("java-h1") || failsOnH2) {
            return Map.of("unsupported", "true");
        }
        HttpClient client = HttpClient.newBuilder()
            .version(isH1 ? HttpClient.Version.HTTP_1_1 : HttpClient.Version.HTTP_2)
            .sslContext(tls).connectTimeout(Duration.ofSeconds(10)).build();
        if (has("repeat")) {
            return many(client);
        }
        Map<String, String> found = limited(client, words.get("url"));
        if (has("then")) {
            Client next = new Client("method=GET\tlimit=" + words.get("limit"));
            next.limited(client, words.get("then")).forEach((name, value) -> found.put("then." + name, value));
        }
        return found;
    }

    private static String json(Map<String, String> found) {
        List<String> pairs = new ArrayList<>();
        found.forEach((name, value) -> pairs.add(quoted(name) + ":" + quoted(value)));
        return "{" + String.join(",", pairs) + "}";
    }

    private static String quoted(String text) {
        String escaped = text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
        return '"' + escaped.replaceAll("\\p{Cntrl}", " ") + '"';
    }

    private static SSLContext trusting(String authority) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream file = Files.newInputStream(Path.of(authority))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    public static void main(String[] arguments) throws Exception {
        SSLContext tls = trusting(arguments[0]);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            System.out.println(json(new Client(lines.nextLine()).run(tls)));
        }
        System.exit(0);
    }
}
