//! Values to elements and back, as tables.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use expr::json;
use expr::value::Value;

use crate::soap::envelope::{Envelope, Message, body_value};
use crate::soap::wsdl::{Operation, Wsdl};

/// An operation `Do` whose request and answer are the element `Do` of this schema.
pub(crate) fn operation(schema: &str) -> Result<Operation, String> {
    let wsdl = format!(
        r#"<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" targetNamespace="u:w"
            xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:d="u:w" xmlns:t="u:t"
            xmlns:xs="http://www.w3.org/2001/XMLSchema">
          <w:types><xs:schema targetNamespace="u:t" elementFormDefault="qualified">{schema}
          </xs:schema></w:types>
          <w:message name="m"><w:part name="p" element="t:Do"/></w:message>
          <w:portType name="p"><w:operation name="Do"><w:input message="d:m"/>
            <w:output message="d:m"/></w:operation></w:portType>
          <w:binding name="b" type="d:p"><s:binding
            transport="http://schemas.xmlsoap.org/soap/http"/>
            <w:operation name="Do"><s:operation soapAction="do"/>
            <w:input><s:body use="literal"/></w:input><w:output><s:body use="literal"/></w:output>
            </w:operation></w:binding>
          <w:service name="s"><w:port name="p" binding="d:b"><s:address location="http://a/"/>
          </w:port></w:service></w:definitions>"#
    );
    let wsdl = Wsdl::read("t.wsdl", &|_| Ok(Bytes::from(wsdl.clone())));
    let wsdl = wsdl.map_err(|it| it.text())?;
    let port = wsdl.port(None).map_err(|it| it.text())?;
    wsdl.operation(&port, "Do").map_err(|it| it.text())
}

/// A request with this body.
pub(crate) fn written(operation: &Operation, body: &str) -> Result<String, String> {
    let body = json::parse(&Bytes::copy_from_slice(body.as_bytes()), 300).unwrap();
    let message = Message {
        version: crate::soap::wsdl::Version::V11,
        model: &operation.model,
        shape: &operation.input,
        size_max: 1 << 20,
    };
    message
        .write(&body, None, None)
        .map_err(|it| it.to_string())
}

pub(crate) fn read(operation: &Operation, envelope: &str) -> Result<Value, String> {
    let envelope = Envelope::read(&Bytes::from(envelope.to_owned()), b"").unwrap();
    let shape = &operation.input;
    let read = body_value(shape, &operation.model, operation.is_rpc, &envelope.body);
    read.map_err(|it| it.to_string())
}

fn json_text(value: &Value) -> String {
    let mut out = Vec::new();
    json::write(value, 1 << 20, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// What stands in the body, without the prefixes of the writer.
fn inner(envelope: &str) -> String {
    let start = envelope.find(":Body>").unwrap() + 6;
    let end = envelope.rfind("</n0:Body>").unwrap();
    envelope[start..end].replace("n1:", "")
}

const TYPES: &str = r#"
  <xs:element name="Do"><xs:complexType><xs:sequence>
    <xs:element name="s" type="xs:string" minOccurs="0" nillable="true"/>
    <xs:element name="d" type="xs:decimal" minOccurs="0"/>
    <xs:element name="i" type="xs:int" minOccurs="0" maxOccurs="3"/>
    <xs:element name="b" type="xs:boolean" minOccurs="0"/>
    <xs:element name="f" type="xs:double" minOccurs="0"/>
    <xs:element name="when" type="xs:dateTime" minOccurs="0"/>
    <xs:element name="data" type="xs:base64Binary" minOccurs="0"/>
    <xs:element name="color" type="t:Color" minOccurs="0"/>
    <xs:element name="codes" type="t:Codes" minOccurs="0"/>
    <xs:element name="either" type="t:Either" minOccurs="0"/>
    <xs:element name="short" type="t:Short" minOccurs="0"/>
    <xs:element name="money" type="t:Money" minOccurs="0"/>
    <xs:element name="node" type="t:Node" minOccurs="0"/>
    <xs:element name="animal" type="t:Animal" minOccurs="0" maxOccurs="unbounded"/>
    <xs:element name="free" minOccurs="0"/>
    <xs:choice minOccurs="0"><xs:element name="card" type="xs:string"/>
      <xs:element name="iban" type="xs:string"/></xs:choice>
    <xs:sequence minOccurs="0" maxOccurs="unbounded"><xs:element name="k" type="xs:string"/>
      <xs:element name="v" type="xs:int"/></xs:sequence>
    <xs:element ref="t:Shape" minOccurs="0"/>
  </xs:sequence></xs:complexType></xs:element>
  <xs:simpleType name="Color"><xs:restriction base="xs:token"><xs:enumeration value="red"/>
    <xs:enumeration value="blue"/></xs:restriction></xs:simpleType>
  <xs:simpleType name="Codes"><xs:list itemType="xs:int"/></xs:simpleType>
  <xs:simpleType name="Either"><xs:union memberTypes="xs:int t:Color"/></xs:simpleType>
  <xs:simpleType name="Short"><xs:restriction base="xs:string"><xs:minLength value="2"/>
    <xs:maxLength value="4"/></xs:restriction></xs:simpleType>
  <xs:complexType name="Money"><xs:simpleContent><xs:extension base="xs:decimal">
    <xs:attribute name="cur" type="xs:string" use="required"/>
    <xs:attribute name="kind" default="net"/></xs:extension></xs:simpleContent></xs:complexType>
  <xs:complexType name="Node"><xs:sequence><xs:element name="name" type="xs:string"/>
    <xs:element name="node" type="t:Node" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
  </xs:complexType>
  <xs:complexType name="Animal" abstract="true"><xs:sequence>
    <xs:element name="name" type="xs:string"/></xs:sequence></xs:complexType>
  <xs:complexType name="Cat"><xs:complexContent><xs:extension base="t:Animal"><xs:sequence>
    <xs:element name="lives" type="xs:int"/></xs:sequence></xs:extension></xs:complexContent>
  </xs:complexType>
  <xs:element name="Shape" type="xs:string" abstract="true"/>
  <xs:element name="Circle" type="xs:string" substitutionGroup="t:Shape"/>
  <xs:element name="Square" type="xs:string" substitutionGroup="t:Shape"/>
"#;

#[test]
fn values_go_there_and_back() {
    let operation = operation(TYPES).unwrap();
    let cases = [
        ("{}", "<Do/>", "{}"),
        (
            r#"{"d":1.50,"s":"a<b"}"#,
            "<Do><s>a&lt;b</s><d>1.50</d></Do>",
            r#"{"s":"a<b","d":1.50}"#,
        ),
        (
            r#"{"s":null}"#,
            r#"<Do><s xsi:nil="true"/></Do>"#,
            r#"{"s":null}"#,
        ),
        (r#"{"d":null}"#, "<Do/>", "{}"),
        (
            r#"{"d":123456789012345678901234567890.10}"#,
            "<Do><d>123456789012345678901234567890.10</d></Do>",
            r#"{"d":123456789012345678901234567890.10}"#,
        ),
        (r#"{"i":5.0}"#, "<Do><i>5</i></Do>", r#"{"i":[5]}"#),
        (
            r#"{"i":[1,"2"]}"#,
            "<Do><i>1</i><i>2</i></Do>",
            r#"{"i":[1,2]}"#,
        ),
        (r#"{"b":true}"#, "<Do><b>true</b></Do>", r#"{"b":true}"#),
        (r#"{"b":0}"#, "<Do><b>0</b></Do>", r#"{"b":false}"#),
        (r#"{"f":"INF"}"#, "<Do><f>INF</f></Do>", r#"{"f":"INF"}"#),
        (r#"{"f":1.5e3}"#, "<Do><f>1.5e3</f></Do>", r#"{"f":1.5e3}"#),
        (
            r#"{"when":"2026-01-31T00:00:00Z"}"#,
            "<Do><when>2026-01-31T00:00:00Z</when></Do>",
            r#"{"when":"2026-01-31T00:00:00Z"}"#,
        ),
        (
            r#"{"data":"YQ=="}"#,
            "<Do><data>YQ==</data></Do>",
            r#"{"data":"YQ=="}"#,
        ),
        (
            r#"{"color":" red "}"#,
            "<Do><color>red</color></Do>",
            r#"{"color":"red"}"#,
        ),
        (
            r#"{"codes":[1,2]}"#,
            "<Do><codes>1 2</codes></Do>",
            r#"{"codes":[1,2]}"#,
        ),
        (
            r#"{"either":"blue"}"#,
            "<Do><either>blue</either></Do>",
            r#"{"either":"blue"}"#,
        ),
        (
            r#"{"either":7}"#,
            "<Do><either>7</either></Do>",
            r#"{"either":7}"#,
        ),
        (
            r##"{"money":{"#content":9.90,"@cur":"EUR"}}"##,
            r#"<Do><money cur="EUR">9.90</money></Do>"#,
            r##"{"money":{"@cur":"EUR","@kind":"net","#content":9.90}}"##,
        ),
        (
            r#"{"node":{"node":{"name":"b"},"name":"a"}}"#,
            "<Do><node><name>a</name><node><name>b</name></node></node></Do>",
            r#"{"node":{"name":"a","node":[{"name":"b"}]}}"#,
        ),
        (
            r#"{"animal":{"@xsi:type":"Cat","name":"Tom","lives":9}}"#,
            r#"<Do><animal xsi:type="Cat"><name>Tom</name><lives>9</lives></animal></Do>"#,
            r#"{"animal":[{"@xsi:type":"Cat","name":"Tom","lives":9}]}"#,
        ),
        (
            r#"{"free":{"x":["1","2"],"y":{"@xmlns":"","z":null}}}"#,
            "<Do><free><x>1</x><x>2</x><y><z/></y></free></Do>",
            r#"{"free":{"x":["1","2"],"y":{"@xmlns":"","z":null}}}"#,
        ),
        (
            r#"{"iban":"DE"}"#,
            "<Do><iban>DE</iban></Do>",
            r#"{"iban":"DE"}"#,
        ),
        (
            r#"{"v":[1,2],"k":["a","b"]}"#,
            "<Do><k>a</k><v>1</v><k>b</k><v>2</v></Do>",
            r#"{"k":["a","b"],"v":[1,2]}"#,
        ),
        (
            r#"{"Square":"x"}"#,
            "<Do><Square>x</Square></Do>",
            r#"{"Square":"x"}"#,
        ),
    ];
    for (body, xml, back) in cases {
        let envelope = written(&operation, body).unwrap_or_else(|it| panic!("{body}: {it}"));
        let shown = inner(&envelope).replace("n2:", "");
        assert_eq!(shown, xml, "{body}");
        let value = read(&operation, &envelope).unwrap_or_else(|it| panic!("{body}: {it}"));
        assert_eq!(json_text(&value), back, "{body}");
    }
}

#[test]
fn what_does_not_fit_is_told_with_its_path() {
    let operation = operation(TYPES).unwrap();
    for (body, expected) in [
        ("[]", "is an object, not array"),
        (r#"{"i":1.5}"#, "`i[0]` is an integer within its range"),
        (r#"{"i":[1,"x"]}"#, "`i[1]` is an integer within its range"),
        (r#"{"i":[1,2,3,4]}"#, "`i` has too many items"),
        (
            r#"{"colour":1}"#,
            "`colour` is not declared: did you mean `color`?",
        ),
        (r#"{"color":"green"}"#, "`color` is one of `red`, `blue`"),
        (r#"{"b":"yes"}"#, "`b` is a boolean"),
        (r#"{"d":{}}"#, "`d` is a decimal number, not object"),
        (
            r#"{"when":"today"}"#,
            "`when` is a date and time such as `2026-01-31T23:59:00Z`",
        ),
        (r#"{"data":"*"}"#, "`data` is base64"),
        (
            r#"{"codes":[1,"a"]}"#,
            "`codes` is an integer within its range",
        ),
        (
            r#"{"either":"pink"}"#,
            "`either` is of none of the types that it may have",
        ),
        (r#"{"short":"a"}"#, "`short` has a length of at least 2"),
        (r#"{"short":"abcde"}"#, "`short` has a length of at most 4"),
        (r##"{"money":{"#content":1}}"##, "`money.@cur` is missing"),
        (r#"{"money":{"@cur":"EUR"}}"#, "`money.#content` is missing"),
        (r#"{"node":{}}"#, "`node.name` is missing"),
        (r#"{"node":{"name":null}}"#, "`node.name` may not be null"),
        (
            r#"{"node":{"name":"a","node":[{"name":"b"},{"name":"c","nod":1}]}}"#,
            "`node.node[1].nod` is not declared: did you mean `node`?",
        ),
        (
            r#"{"animal":{"name":"a"}}"#,
            "`animal[0]` is of an abstract type: say `@xsi:type`, one of `Cat`",
        ),
        (
            r#"{"animal":{"@xsi:type":"Dog"}}"#,
            "`animal[0]` has an `@xsi:type` that is none of `Cat`",
        ),
        (
            r#"{"card":"1","iban":"2"}"#,
            "`iban` cannot stand beside the other members",
        ),
        (r#"{"k":["a","b"],"v":1}"#, "`v` is missing"),
        (
            r#"{"s":"\u0001"}"#,
            "`s` has a character that XML does not have",
        ),
    ] {
        assert_eq!(written(&operation, body).unwrap_err(), expected, "{body}");
    }
}

#[test]
fn elements_that_do_not_fit_are_told() {
    let operation = operation(TYPES).unwrap();
    for (xml, expected) in [
        ("<d>1</d><s>a</s>", "`s` stands where it may not stand"),
        ("<i>x</i>", "`i[0]` is an integer within its range"),
        (
            "<i>1</i><i>2</i><i>3</i><i>4</i>",
            "`i` stands where it may not stand",
        ),
        ("<node/>", "`node` has no `name`"),
        (
            "<node><nam/></node>",
            "`node.nam` stands where only `name` may stand",
        ),
        (
            "<d xmlns:x='http://www.w3.org/2001/XMLSchema-instance' x:nil='true'/>",
            "`d` may not be nil",
        ),
        ("<money>1</money>", "`money.@cur` is missing"),
        (
            "<money cur='a' x='b'>1</money>",
            "`money.@x` is not declared",
        ),
        (
            "<animal><name/></animal>",
            "`animal[0]` is of an abstract type and has no `xsi:type`",
        ),
        (
            "<node>text<name/></node>",
            "`node` has elements and no text",
        ),
        ("<s><b/></s>", "`s.b` has text and no elements"),
        ("<k>a</k>", "has no `v`"),
    ] {
        let envelope = format!(
            "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'><e:Body>\
             <Do xmlns='u:t'>{xml}</Do></e:Body></e:Envelope>"
        );
        assert_eq!(read(&operation, &envelope).unwrap_err(), expected, "{xml}");
    }
}

/// RFC 7303 for XML holds for envelopes, too.
#[test]
fn envelopes_of_older_systems_are_read_in_their_encoding() {
    let operation = operation("<xs:element name=\"Do\" type=\"xs:string\"/>").unwrap();
    let envelope = written(&operation, "\"ä\"").unwrap();
    let latin1 = |text: &str| -> Vec<u8> { text.chars().map(|it| it as u8).collect() };
    let declared = envelope.replace("UTF-8", "ISO-8859-1");
    let bare = envelope.split_once("?>").unwrap().1;
    let utf16 = bare.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (bytes, content_type) in [
        (latin1(&declared), &b"text/xml"[..]),
        (latin1(&envelope), b"text/xml; charset=iso-8859-1"),
        (utf16, b"text/xml; charset=utf-16le"),
    ] {
        let envelope = Envelope::read(&Bytes::from(bytes), content_type).unwrap();
        let (shape, model) = (&operation.input, &operation.model);
        let value = body_value(shape, model, operation.is_rpc, &envelope.body).unwrap();
        assert_eq!(json_text(&value), "\"ä\"");
    }
    let unknown = Envelope::read(&Bytes::from(envelope), b"text/xml; charset=klingon");
    let reason = unknown.unwrap_err();
    assert_eq!(reason.reason(), "the encoding `klingon` is not known");
}

/// A message of many items, that would take long, is neither written nor read to its end when
/// nobody waits for it any more.
#[test]
fn messages_that_nobody_waits_for_are_given_up() {
    let schema = "<xs:element name=\"Do\"><xs:complexType><xs:sequence>\
         <xs:element name=\"n\" type=\"xs:int\" maxOccurs=\"unbounded\"/>\
         </xs:sequence></xs:complexType></xs:element>";
    let operation = operation(schema).unwrap();
    let body = format!("{{\"n\":[{}1]}}", "1,".repeat(10_000));
    let envelope = written(&operation, &body).unwrap();
    let parts = Envelope::read(&Bytes::from(envelope.clone()), b"").unwrap();
    let read = || {
        let shape = &operation.input;
        body_value(shape, &operation.model, operation.is_rpc, &parts.body).map(drop)
    };
    assert!(read().is_ok());
    let stop = Arc::new(AtomicBool::new(true));
    expr::jq::stoppable(&stop, || {
        let error = written(&operation, &body).unwrap_err();
        assert!(error.contains("is not written any further"), "{error}");
        assert!(Envelope::read(&Bytes::from(envelope.clone()), b"").is_err());
        let error = read().unwrap_err().to_string();
        assert!(error.contains("is not read any further"), "{error}");
    });
}
