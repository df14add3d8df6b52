//! Files that can be read, and those that cannot.

use bytes::Bytes;

use crate::soap::wsdl::Wsdl;
use crate::soap::xsd::tests::operation;

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
