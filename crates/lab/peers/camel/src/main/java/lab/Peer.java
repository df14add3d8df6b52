package lab;

import org.apache.camel.impl.DefaultCamelContext;
import org.apache.camel.main.Main;

/** Runs a file of routes: `ROUTES.yaml`; or says its version: `--version`. */
public final class Peer {
    private Peer() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 1) {
            System.err.println("usage: camel-peer ROUTES.yaml | --version");
            System.exit(2);
        }
        if (arguments[0].equals("--version")) {
            String version = new DefaultCamelContext().getVersion();
            String java = System.getProperty("java.version");
            System.out.println("Apache Camel " + version + ", Java " + java);
            return;
        }
        Main main = new Main();
        main.bind("orders", new Orders());
        main.addInitialProperty("camel.main.routesIncludePattern", "file:" + arguments[0]);
        main.run();
    }
}
