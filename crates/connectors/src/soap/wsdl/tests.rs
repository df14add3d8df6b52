//! Files that can be read, and those that cannot.

mod corpus;

use bytes::Bytes;

use crate::soap::envelope::Envelope;
use crate::soap::wsdl::{Operation, Wsdl};
use crate::soap::xsd::tests::{operation, written};

fn read(files: &[(&str, &str)]) -> Result<Wsdl, String> {
    let find = |name: &str| {
        let found = files.iter().find(|(known, _)| *known == name);
        let text = found.ok_or_else(|| "it is not there".to_owned())?.1;
        Ok(Bytes::copy_from_slice(text.as_bytes()))
    };
    Wsdl::read("a/s.wsdl", &find).map_err(|problem| problem.text())
}

fn definitions(within: &str) -> String {
    format!(
        "<w:definitions xmlns:w='http://schemas.xmlsoap.org/wsdl/' \
         xmlns:xs='http://www.w3.org/2001/XMLSchema'>\n{within}</w:definitions>"
    )
}

fn schema(within: &str) -> String {
    definitions(&format!(
        "<w:types><xs:schema targetNamespace='u'>\n{within}</xs:schema></w:types>"
    ))
}

#[test]
fn imports_are_followed_within_the_folder() {
    let main = schema(
        "<xs:include schemaLocation='../x/types.xsd'/><xs:import namespace='v' \
         schemaLocation='./v.xsd'/><xs:import \
         namespace='http://www.w3.org/XML/1998/namespace' schemaLocation='http://w3/xml.xsd'/>",
    );
    let types = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>\
                 <xs:include schemaLocation='types.xsd'/></xs:schema>";
    let other = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' targetNamespace='v'/>";
    let files = [
        ("a/s.wsdl", main.as_str()),
        ("x/types.xsd", types),
        ("a/v.xsd", other),
    ];
    let wsdl = read(&files).unwrap();
    let names: Vec<&str> = wsdl.files.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["a/s.wsdl", "x/types.xsd", "a/v.xsd"]);
}

#[test]
fn files_that_cannot_be_used_are_told_with_their_lines() {
    let wsdl20 = "<d:description xmlns:d='http://www.w3.org/ns/wsdl'/>".to_owned();
    for (text, expected) in [
        (
            "<a>\n<b></a>".to_owned(),
            "a/s.wsdl, line 2: the text is not well-formed XML",
        ),
        (
            "<!DOCTYPE a [<!ENTITY x 'y'>]><a/>".to_owned(),
            "a/s.wsdl, line 1: a document type declaration, which is not allowed",
        ),
        (
            "<html/>".to_owned(),
            "a/s.wsdl, line 1: this is neither WSDL 1.1 nor a schema",
        ),
        (wsdl20, "a/s.wsdl, line 1: this is WSDL 2.0"),
        (
            definitions("<w:import namespace='u' location='https://x/y.wsdl'/>"),
            "a/s.wsdl, line 2: `https://x/y.wsdl` is on another machine",
        ),
        (
            definitions("<w:import namespace='u' location='../../y.wsdl'/>"),
            "a/s.wsdl, line 2: `../../y.wsdl` leads out of the flow file's folder",
        ),
        (
            definitions("<w:import namespace='u' location='y.wsdl'/>"),
            "a/s.wsdl, line 2: `a/y.wsdl` cannot be read: it is not there",
        ),
        (
            schema("<xs:redefine schemaLocation='y.xsd'/>"),
            "a/s.wsdl, line 3: `redefine` is not supported",
        ),
        (
            schema("\n<xs:element name='a' substitutionGroup='q:a'/>"),
            "a/s.wsdl, line 4: `q:a` has a prefix that is not declared",
        ),
    ] {
        let told = read(&[("a/s.wsdl", &text)]).unwrap_err();
        assert_eq!(told, expected, "{text}");
    }
}

#[test]
fn only_what_an_operation_uses_has_to_be_supported() {
    let fine = "<xs:element name='Do' type='xs:string'/><xs:element name='Odd' type='t:None'/>";
    assert!(operation(fine).is_ok());
    let within = |within: &str| {
        format!("<xs:element name='Do'><xs:complexType>{within}</xs:complexType></xs:element>")
    };
    let base = "<xs:complexType name='A'><xs:complexContent><xs:extension base='t:A'/>\
                </xs:complexContent></xs:complexType>";
    for (schema, expected) in [
        (
            "<xs:element name='Do' type='t:None'/>".to_owned(),
            "there is no type `None` of `u:t`",
        ),
        (
            "<xs:element name='Do' type='xs:strin'/>".to_owned(),
            "XML Schema has no type `strin`",
        ),
        (
            within("<xs:sequence><xs:element ref='xs:schema'/><xs:any/></xs:sequence>"),
            "a .NET DataSet (a `ref` to `xs:schema`) is not supported",
        ),
        (
            within("<xs:sequence maxOccurs='2'><xs:element name='a'/><xs:any/></xs:sequence>"),
            "a repeated sequence with parts that are optional or repeated themselves",
        ),
        (
            within(
                "<xs:sequence><xs:element name='a'/><xs:element name='a' form='unqualified'/>\
                 </xs:sequence>",
            ),
            "two elements `a` of different namespaces in one type",
        ),
        (
            within("<xs:sequence><xs:element name='a' maxOccurs='x'/></xs:sequence>"),
            "`minOccurs` or `maxOccurs` is no number",
        ),
        (
            format!("<xs:element name='Do' type='t:A'/>{base}"),
            "types are made of each other without end",
        ),
        (
            "<xs:element name='Do' type='t:L'/><xs:simpleType name='L'><xs:restriction \
             base='xs:string'><xs:length value='x'/></xs:restriction></xs:simpleType>"
                .to_owned(),
            "`length` has a value that it cannot have",
        ),
    ] {
        let told = operation(&schema).err().unwrap_or_default();
        assert!(told.ends_with(expected), "{schema}: {told}");
    }
}

/// The operation `Do` of a service with these messages, faults and extensions of its binding.
struct Service<'a> {
    style: &'a str,
    messages: &'a str,
    faults: &'a str,
    header: &'a str,
}

impl Service<'_> {
    fn text(&self) -> String {
        let Self {
            style,
            messages,
            faults,
            header,
        } = self;
        format!(
            r#"<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" targetNamespace="u:w"
            xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:d="u:w" xmlns:t="u:t"
            xmlns:xs="http://www.w3.org/2001/XMLSchema">
          <w:types><xs:schema targetNamespace="u:t" elementFormDefault="qualified">
            <xs:element name="A" type="xs:int"/><xs:element name="B" type="xs:string"/>
          </xs:schema></w:types>{messages}
          <w:portType name="p"><w:operation name="Do"><w:input message="d:in"/>
            <w:output message="d:out"/>{faults}</w:operation></w:portType>
          <w:binding name="b" type="d:p"><s:binding style="{style}"
            transport="http://schemas.xmlsoap.org/soap/http"/>
            <w:operation name="Do"><s:operation soapAction="do"/>
            <w:input>{header}<s:body use="literal" namespace="u:r"/></w:input>
            <w:output><s:body use="literal" namespace="u:r"/></w:output>
            </w:operation></w:binding>
          <w:service name="s"><w:port name="p" binding="d:b"><s:address location="http://a/"/>
          </w:port></w:service></w:definitions>"#
        )
    }

    fn operation(&self) -> Operation {
        let wsdl = read(&[("a/s.wsdl", &self.text())]).unwrap();
        let port = wsdl.port(None).unwrap();
        wsdl.operation(&port, "Do").map_err(|it| it.text()).unwrap()
    }
}

fn message(name: &str, parts: &str) -> String {
    format!("<w:message name=\"{name}\">{parts}</w:message>")
}

/// The operation of a service that takes these parts and knows neither faults nor headers.
fn operation_of(style: &str, parts: &str) -> Operation {
    let messages = message("in", parts) + &message("out", "");
    let service = Service {
        style,
        messages: &messages,
        faults: "",
        header: "",
    };
    service.operation()
}

/// The content of a request with this body.
fn decoded(operation: &Operation, body: &str) -> Result<String, String> {
    let envelope = format!(
        "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/' xmlns:t='u:t' \
         xmlns:r='u:r'><e:Body>{body}</e:Body></e:Envelope>"
    );
    let value = crate::soap::xsd::tests::read(operation, &envelope)?;
    Ok(json(&value))
}

fn json(value: &expr::value::Value) -> String {
    let mut out = Vec::new();
    expr::json::write(value, 1 << 20, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn faults_and_headers_with_a_type_are_elements_of_their_part() {
    let messages = message("in", "<w:part name='x' element='t:A'/>")
        + &message("out", "")
        + &message("f", "<w:part name='reason' type='xs:string'/>")
        + &message("h", "<w:part name='token' type='xs:string'/>");
    let service = Service {
        style: "document",
        messages: &messages,
        faults: "<w:fault name='Bad' message='d:f'/>",
        header: "<s:header message='d:h' part='token' use='literal' namespace='u:h'/>",
    };
    let operation = service.operation();
    let header = &operation.input.headers[0].element.name;
    assert!(header.is(Some("u:h"), "token"), "{header}");
    let fault = &operation.faults[0];
    assert_eq!(&*fault.name, "Bad");
    let text = "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body><e:Fault>\
                <faultcode>e:Client</faultcode><faultstring>no</faultstring><detail><reason>late\
                </reason></detail></e:Fault></e:Body></e:Envelope>";
    let envelope = Envelope::read(&Bytes::from(text.to_owned()), b"").unwrap();
    let fault = envelope.fault(&operation.model, &operation.faults).unwrap();
    assert_eq!(fault.type_name(), "reason");
}

/// What the binding of a service has that nobody can speak in literal SOAP.
#[test]
fn bindings_with_attachments_or_encodings_are_refused_in_clear_words() {
    let messages = message("in", "<w:part name='x' type='xs:int'/>") + &message("out", "");
    let service = Service {
        style: "rpc",
        messages: &messages,
        faults: "",
        header: "",
    };
    let sound = service.text();
    let body = "<w:input><s:body use=\"literal\" namespace=\"u:r\"/></w:input>";
    let mime = "<w:input><m:multipartRelated xmlns:m=\"http://schemas.xmlsoap.org/wsdl/mime/\">\
                <m:part><s:body use=\"literal\"/></m:part></m:multipartRelated></w:input>";
    let encoded = "<w:input><s:body use=\"encoded\" namespace=\"u:r\" \
                   encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"/></w:input>";
    for (input, problem, hint) in [
        (
            mime,
            "attachments are not supported",
            "sends them as xs:base64Binary",
        ),
        (encoded, "encoded", "literal"),
    ] {
        assert!(sound.contains(body));
        let wsdl = read(&[("a/s.wsdl", &sound.replace(body, input))]).unwrap();
        let port = wsdl.port(None).unwrap();
        let told = wsdl.operation(&port, "Do").map(|_| ()).unwrap_err();
        let told = format!("{} {told:?}", told.text());
        assert!(told.contains(problem) && told.contains(hint), "{told}");
        assert!(told.contains("a/s.wsdl, line "), "{told}");
    }
    service.operation();
}

#[test]
fn overloading_and_what_a_service_begins_are_refused_in_clear_words() {
    let messages = message("in", "<w:part name='x' element='t:A'/>") + &message("out", "");
    let service = Service {
        style: "document",
        messages: &messages,
        faults: "",
        header: "",
    };
    let sound = service.text();
    let bound = sound.find("<w:binding").unwrap();
    let (port_type, binding) = sound.split_at(bound);
    let twice = |text: &str| {
        let start = text.find("<w:operation").unwrap();
        let end = text.find("</w:operation>").unwrap() + "</w:operation>".len();
        text.replacen(&text[start..end], &text[start..end].repeat(2), 1)
    };
    let input = "<w:input message=\"d:in\"/>";
    assert!(port_type.contains(input), "{port_type}");
    let without_input = port_type.replace(input, "");
    for (text, problem) in [
        (
            format!("{port_type}{}", twice(binding)),
            "a second operation `Do`: overloading is not supported",
        ),
        (
            format!("{without_input}{binding}"),
            "an operation that the service begins is not supported",
        ),
    ] {
        let wsdl = read(&[("a/s.wsdl", &text)]).unwrap();
        let port = wsdl.port(None).unwrap();
        let told = wsdl.operation(&port, "Do").map(|_| ()).unwrap_err();
        let told = format!("{} {told:?}", told.text());
        assert!(told.contains(problem), "{told}");
        assert!(told.contains("a/s.wsdl, line "), "{told}");
    }
    service.operation();
}

#[test]
fn rpc_parts_may_be_elements() {
    let parts = "<w:part name='x' element='t:A'/><w:part name='y' type='xs:int'/>";
    let operation = operation_of("rpc", parts);
    let body = "<r:Do><t:A>1</t:A><y>2</y></r:Do>";
    assert_eq!(decoded(&operation, body).unwrap(), r#"{"A":1,"y":2}"#);
    let envelope = written(&operation, r#"{"A":1,"y":2}"#).unwrap();
    assert!(
        decoded_envelope(&operation, &envelope).contains(r#""A":1"#),
        "{envelope}"
    );
}

fn decoded_envelope(operation: &Operation, envelope: &str) -> String {
    json(&crate::soap::xsd::tests::read(operation, envelope).unwrap())
}

#[test]
fn a_document_body_may_have_several_parts() {
    let parts = "<w:part name='x' element='t:A'/><w:part name='y' element='t:B'/>";
    let operation = operation_of("document", parts);
    let body = "<t:A>1</t:A><t:B>b</t:B>";
    assert_eq!(decoded(&operation, body).unwrap(), r#"{"A":1,"B":"b"}"#);
    for odd in [
        "<t:A>1</t:A>",
        "",
        "<t:B>b</t:B><t:A>1</t:A>",
        "<t:A>1</t:A><t:B/><t:B/>",
    ] {
        assert!(decoded(&operation, odd).is_err(), "{odd}");
    }
    let envelope = written(&operation, r#"{"B":"b","A":1}"#).unwrap();
    assert_eq!(
        decoded_envelope(&operation, &envelope),
        r#"{"A":1,"B":"b"}"#
    );
    assert!(written(&operation, r#"{"A":1}"#).is_err());
    assert!(written(&operation, r#"{"A":1,"B":"b","C":1}"#).is_err());
}

#[test]
fn files_in_other_encodings_are_read() {
    let latin1 = definitions("<w:message name='Gr\u{f6}\u{df}e'/>");
    let latin1: Vec<u8> = format!("<?xml version='1.0' encoding='ISO-8859-1'?>{latin1}")
        .chars()
        .map(|it| it as u8)
        .collect();
    let wsdl = Wsdl::read("s.wsdl", &|_| Ok(Bytes::from(latin1.clone()))).unwrap();
    let (_, message) = wsdl.all("message").next().unwrap();
    assert_eq!(message.attribute("name"), Some("Größe"));
    // Clients get the file in UTF-8.
    assert!(
        std::str::from_utf8(&wsdl.files[0].1)
            .unwrap()
            .contains("Größe")
    );
    let odd = format!(
        "<?xml version='1.0' encoding='x-mac-klingon'?>{}",
        definitions("")
    );
    let told = read(&[("a/s.wsdl", &odd)]).unwrap_err();
    let expected = "a/s.wsdl, line 1: the encoding `x-mac-klingon` is not known";
    assert_eq!(told, expected);
}

#[test]
fn schemas_of_standards_are_brought_along() {
    let import = |namespace: &str, location: &str| {
        schema(&format!(
            "<xs:import namespace='{namespace}' schemaLocation='{location}'/>"
        ))
    };
    for (namespace, location, files) in [
        (
            "http://www.w3.org/2005/08/addressing",
            "http://www.w3.org/2006/03/addressing/ws-addr.xsd",
            2,
        ),
        (
            "http://www.w3.org/2005/08/addressing",
            "/schemas/wsdl/ws-addr.xsd",
            2,
        ),
        (
            "http://schemas.xmlsoap.org/ws/2004/08/addressing",
            "http://schemas.xmlsoap.org/ws/2004/08/addressing",
            2,
        ),
        (
            "http://ws-i.org/profiles/basic/1.1/xsd",
            "http://ws-i.org/profiles/basic/1.1/swaref.xsd",
            2,
        ),
        (
            "http://schemas.xmlsoap.org/soap/encoding",
            "http://schemas.xmlsoap.org/soap/encoding/",
            1,
        ),
    ] {
        let text = import(namespace, location);
        let wsdl = read(&[("a/s.wsdl", &text)]).unwrap();
        assert_eq!(wsdl.files.len(), files, "{namespace}");
    }
    // The service's own copy counts.
    let text = import("http://www.w3.org/2005/08/addressing", "wsa.xsd");
    let own = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' \
               targetNamespace='http://www.w3.org/2005/08/addressing'/>";
    let wsdl = read(&[("a/s.wsdl", &text), ("a/wsa.xsd", own)]).unwrap();
    assert_eq!(&*wsdl.files[1].0, "a/wsa.xsd");
    assert!(
        read(&[("a/s.wsdl", &import("u:x", ""))]).is_ok(),
        "as without a location"
    );
    let told = read(&[("a/s.wsdl", &import("u:x", "http://x/y.xsd"))]).unwrap_err();
    assert!(told.ends_with("is on another machine"), "{told}");
}

#[test]
fn addressing_can_be_used() {
    let import = "<xs:import namespace='http://www.w3.org/2005/08/addressing' \
                  schemaLocation='http://www.w3.org/2005/08/addressing/ws-addr.xsd'/>\
                  <xs:element name='Do' xmlns:a='http://www.w3.org/2005/08/addressing' \
                  type='a:EndpointReferenceType'/>";
    let operation = operation(import).unwrap();
    let envelope = written(&operation, r#"{"Address":"http://x/"}"#).unwrap();
    let expected = r##"{"Address":{"#content":"http://x/"}}"##;
    assert_eq!(decoded_envelope(&operation, &envelope), expected);
}
