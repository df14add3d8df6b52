package lab;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.xml.stream.XMLInputFactory;
import javax.xml.stream.XMLStreamConstants;
import javax.xml.stream.XMLStreamReader;
import org.apache.camel.Exchange;
import org.apache.camel.Message;

/** What the routes of `intertie-bench glu` compute: by hand, which is the least that it can cost here. */
public final class Orders {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final XMLInputFactory XML = XMLInputFactory.newFactory();
    private static final String ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/";

    /** The answer of the straight line. */
    public void queued(Exchange exchange) throws Exception {
        Message message = exchange.getMessage();
        JsonNode body = JSON.readTree(message.getBody(byte[].class));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", body.get("id").longValue());
        answer.put("queued", true);
        message.removeHeaders("*");
        message.setHeader(Exchange.CONTENT_TYPE, "application/json");
        message.setBody(JSON.writeValueAsBytes(answer));
    }

    /** What the REST service is asked. */
    public void prices(Exchange exchange) throws Exception {
        Map<?, ?> order = exchange.getProperty("order", Map.class);
        Map<?, ?> customer = exchange.getProperty("customer", Map.class);
        List<Object> skus = new ArrayList<>();
        for (Object line : (List<?>) order.get("lines")) {
            skus.add(((Map<?, ?>) line).get("sku"));
        }
        Map<String, Object> question = new LinkedHashMap<>();
        question.put("customer", order.get("customer"));
        question.put("tier", customer.get("tier"));
        question.put("skus", skus);
        post(exchange, JSON.writeValueAsBytes(question), "application/json");
    }

    /** What the SOAP service is asked: each line becomes an item. */
    public void checkStock(Exchange exchange) {
        Map<?, ?> order = exchange.getProperty("order", Map.class);
        StringBuilder text = new StringBuilder(512);
        text.append("<soap:Envelope xmlns:soap=\"").append(ENVELOPE).append("\"><soap:Body>");
        text.append("<CheckStock xmlns=\"urn:lab:stock\">");
        int total = 0;
        for (Object each : (List<?>) order.get("lines")) {
            Map<?, ?> line = (Map<?, ?>) each;
            int quantity = ((Number) line.get("qty")).intValue();
            total += quantity * ((Number) line.get("price")).intValue();
            text.append("<item sku=\"");
            escape(text, String.valueOf(line.get("sku")));
            text.append("\"><qty>").append(quantity).append("</qty></item>");
        }
        text.append("</CheckStock></soap:Body></soap:Envelope>");
        exchange.setProperty("total", total);
        post(exchange, text.toString(), "text/xml; charset=utf-8");
        exchange.getMessage().setHeader("SOAPAction", "\"urn:lab:stock/CheckStock\"");
    }

    /** Reads which items are there. */
    public void available(Exchange exchange) throws Exception {
        List<String> skus = new ArrayList<>();
        InputStream body = exchange.getMessage().getBody(InputStream.class);
        XMLStreamReader reader = XML.createXMLStreamReader(body);
        String sku = null;
        while (reader.hasNext()) {
            if (reader.next() != XMLStreamConstants.START_ELEMENT) {
                continue;
            }
            if (reader.getLocalName().equals("item")) {
                sku = reader.getAttributeValue(null, "sku");
            } else if (reader.getLocalName().equals("available")
                    && Boolean.parseBoolean(reader.getElementText())) {
                skus.add(sku);
            }
        }
        reader.close();
        exchange.setProperty("available", skus);
    }

    /** The row of the order. */
    public void row(Exchange exchange) {
        Map<?, ?> order = exchange.getProperty("order", Map.class);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("id", ((Number) order.get("id")).longValue());
        row.put("customer", order.get("customer"));
        row.put("total", exchange.getProperty("total"));
        row.put("status", exchange.getProperty("status"));
        exchange.getMessage().setBody(row);
    }

    /** What is queued and answered. */
    public void result(Exchange exchange) throws Exception {
        Map<?, ?> order = exchange.getProperty("order", Map.class);
        Map<?, ?> customer = exchange.getProperty("customer", Map.class);
        Map<?, ?> prices = exchange.getProperty("prices", Map.class);
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("id", order.get("id"));
        result.put("customer", customer.get("name"));
        result.put("tier", customer.get("tier"));
        result.put("total", exchange.getProperty("total"));
        result.put("status", exchange.getProperty("status"));
        result.put("priced", ((List<?>) prices.get("skus")).size());
        result.put("available", exchange.getProperty("available"));
        exchange.getMessage().removeHeaders("*");
        exchange.getMessage().setBody(JSON.writeValueAsBytes(result));
    }

    private static void post(Exchange exchange, Object body, String contentType) {
        Message message = exchange.getMessage();
        message.removeHeaders("*");
        message.setHeader(Exchange.HTTP_METHOD, "POST");
        message.setHeader(Exchange.CONTENT_TYPE, contentType);
        message.setBody(body);
    }

    private static void escape(StringBuilder text, String value) {
        for (int index = 0; index < value.length(); index++) {
            char letter = value.charAt(index);
            switch (letter) {
                case '&' -> text.append("&amp;");
                case '<' -> text.append("&lt;");
                case '"' -> text.append("&quot;");
                default -> text.append(letter);
            }
        }
    }
}
