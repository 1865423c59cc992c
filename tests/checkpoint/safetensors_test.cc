#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/json.h"
#include "checkpoint/safetensors_stream.h"

namespace winnow {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string parse_error(const std::string& image) {
  return error_of([&] { parse_safetensors(bytes_of(image), "w.safetensors"); });
}

std::string entry_error(const std::string& entry, const std::string& data) {
  return parse_error(image_of(R"({"t":)" + entry + "}", data));
}

TEST(Safetensors, ReadsOneTensor) {
  const std::string image =
      image_of(R"({"__metadata__":{"format":"pt"},"t":{"dtype":"F32","shape":[2],)"
               R"("data_offsets":[0,8]}})",
               std::string("\0\0\x80\x3F\0\0\0\x40", 8));
  const SafetensorsContent content = parse_safetensors(bytes_of(image), "w");
  EXPECT_EQ(content.metadata.at("format"), "pt");
  const TensorView& tensor = content.tensors.at("t");
  EXPECT_EQ(tensor.shape, Shape{2});
  EXPECT_THAT(tensor.as<float>(), testing::ElementsAre(1.0F, 2.0F));
}

TEST(Safetensors, ReadsAnEmptyFileAndEmptyTensorsAndScalars) {
  EXPECT_TRUE(parse_safetensors(bytes_of(image_of("{}")), "w").tensors.empty());
  const std::string image = image_of(R"({"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
                                     R"("b":{"dtype":"I8","shape":[],"data_offsets":[0,1]},)"
                                     R"("c":{"dtype":"F32","shape":[0],"data_offsets":[1,1]}} )",
                                     "x");
  const SafetensorsContent content = parse_safetensors(bytes_of(image), "w");
  EXPECT_EQ(content.tensors.at("a").count(), 0);
  EXPECT_EQ(content.tensors.at("b").count(), 1);
}

TEST(Safetensors, CopiesTensorsThatAreNotAligned) {
  for (int padding = 0; padding < 8; ++padding) {
    const std::string header = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const std::string image =
        image_of(header + std::string(padding, ' '), std::string("\0\0\x80\x3F", 4));
    const SafetensorsContent content = parse_safetensors(bytes_of(image), "w");
    const TensorView& tensor = content.tensors.at("t");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % 4, 0U);
    EXPECT_EQ(tensor.as<float>()[0], 1.0F);
  }
}

TEST(Safetensors, SetsUnusableTypesApart) {
  TempDir dir;
  dir.write("w.safetensors",
            image_of(R"({"t":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}})", "12345678"));
  const SafetensorsFile file(dir.path() / "w.safetensors");
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.holds("t"));
  EXPECT_THAT(error_of([&] { (void)file.tensor("t"); }),
              AllOf(HasSubstr("w.safetensors: tensor \"t\" has type U64"), HasSubstr("expected")));
  EXPECT_THAT(error_of([&] { (void)file.tensor("u"); }), HasSubstr("tensor \"u\" is missing"));
}

TEST(Safetensors, DoublesBecomeFloats) {
  const double values[] = {1.5, -0.1};
  const std::string data(reinterpret_cast<const char*>(values), sizeof values);
  for (const char* header : {R"({"t":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})",
                             R"({ "t":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})"}) {
    const std::string image = image_of(header, data);  // aligned or not
    const SafetensorsContent content = parse_safetensors(bytes_of(image), "w");
    const TensorView& tensor = content.tensors.at("t");
    EXPECT_EQ(tensor.dtype, DType::f32);
    EXPECT_EQ(tensor.shape, Shape{2});
    EXPECT_EQ(tensor.as<float>()[0], 1.5F);
    EXPECT_EQ(tensor.as<float>()[1], -0.1F);
  }
}

TEST(Safetensors, ALargeFilePointerIsNamed) {
  EXPECT_THAT(parse_error("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
              AllOf(StartsWith("w.safetensors: a Git LFS pointer"), HasSubstr("git lfs pull")));
}

TEST(Safetensors, SaysWhatIsWrongWithTheHeader) {
  EXPECT_THAT(parse_error(""), AllOf(StartsWith("w.safetensors: truncated"), HasSubstr("8")));
  EXPECT_THAT(parse_error("1234567"), StartsWith("w.safetensors: truncated"));
  EXPECT_THAT(parse_error(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
              AllOf(HasSubstr("truncated"), HasSubstr("16"), HasSubstr("only 2")));
  EXPECT_THAT(parse_error(std::string(16, '\xFF')), HasSubstr("larger than the 100000000"));
  EXPECT_THAT(parse_error(image_of("")), HasSubstr("begin with '{'"));
  EXPECT_THAT(parse_error(image_of("[]")), HasSubstr("begin with '{'"));
  EXPECT_THAT(parse_error(image_of("{\"a\": ")),
              StartsWith("w.safetensors: header: not valid JSON"));
  EXPECT_THAT(parse_error(image_of("{\"a\n\xFF\": 1}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error(image_of(R"({"a":{},"a":{}})")),
              HasSubstr("key \"a\" appears twice in one object"));
  EXPECT_THAT(parse_error(image_of(R"({"__metadata__":{"k":1}})")),
              HasSubstr("__metadata__: \"k\": expected a string, got 1"));
  EXPECT_THAT(parse_error(image_of(R"({"__metadata__":[]})")),
              HasSubstr("__metadata__: expected a JSON object"));
}

TEST(Safetensors, DeepNestingIsAnErrorNotACrash) {
  const std::string deep = "{\"a\":" + std::string(1'000'000, '[');
  EXPECT_THAT(parse_error(image_of(deep)), HasSubstr("nested deeper than 64"));
}

TEST(Safetensors, SaysWhatIsWrongWithATensor) {
  struct Case {
    const char* entry;
    const char* message;
  };
  const Case cases[] = {
      {"3", "expected a JSON object, got 3"},
      {R"({"shape":[2],"data_offsets":[0,8]})", "dtype: expected a safetensors element type"},
      {R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})", "got \"F31\""},
      {R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})", "dtype: expected a string, got 7"},
      {R"({"dtype":"F32","data_offsets":[0,8]})", "shape: expected an array of sizes, got nothing"},
      {R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "sizes of at least 0, got -2"},
      {R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", "sizes of at least 0, got 2.0"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})", "overflows"},
      {R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})", "overflows"},
      {R"({"dtype":"F32","shape":[2]})", "data_offsets: expected an array of two offsets"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "array of two offsets"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", "array of two offsets"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "expected begin <= end, got [8, 0]"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})",
       "[0, 16] reach beyond the 8 bytes of data"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})",
       "hold 8 bytes, expected 12 for F32 of shape [3]"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(
        entry_error(c.entry, "12345678"),
        AllOf(StartsWith("w.safetensors: "), HasSubstr("tensor \"t\""), HasSubstr(c.message)))
        << c.entry;
  }
}

std::string two_tensors(const std::string& a, const std::string& b, const std::string& data) {
  return parse_error(image_of(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":)" + a +
                                  R"(},"b":{"dtype":"I8","shape":[4],"data_offsets":)" + b + "}}",
                              data));
}

TEST(Safetensors, TensorsMustCoverTheDataOnce) {
  EXPECT_EQ(two_tensors("[0,4]", "[4,8]", "12345678"), "no error");
  EXPECT_THAT(two_tensors("[0,4]", "[2,6]", "12345678"),
              HasSubstr("tensor \"b\" at [2, 6] overlaps tensor \"a\" at [0, 4]"));
  EXPECT_THAT(two_tensors("[0,4]", "[0,4]", "1234"), HasSubstr("overlaps"));
  EXPECT_THAT(two_tensors("[0,4]", "[5,9]", "123456789"),
              HasSubstr("tensor \"b\" begins at offset 5, expected 4"));
  EXPECT_THAT(two_tensors("[4,8]", "[8,12]", "123456789012"),
              HasSubstr("tensor \"a\" begins at offset 4, expected 0"));
  EXPECT_THAT(two_tensors("[0,4]", "[4,8]", "123456789"),
              HasSubstr("the tensors end at offset 8, but the data has 9 bytes"));
}

TEST(Safetensors, EveryTruncationIsAnError) {
  TempDir dir;
  OwnedTensors tensors;
  tensors.add("a", DType::f32, {3});
  tensors.add("b", DType::bf16, {2, 2});
  write_safetensors(dir.path() / "w", tensors.map());
  const std::string image = dir.read("w");
  EXPECT_EQ(parse_error(image), "no error");
  for (std::size_t size = 0; size < image.size(); ++size) {
    EXPECT_THAT(parse_error(image.substr(0, size)), StartsWith("w.safetensors: ")) << size;
  }
}

TEST(Safetensors, NamesWithOddCharactersStayOnOneLine) {
  const std::string message = parse_error(image_of(R"({"a\nb\u001b[31m\u00e9":{"dtype":"F32"}})"));
  EXPECT_THAT(message, HasSubstr(R"(tensor "a\nb\u001b[31m\u00e9")"));
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
  TempDir dir;
  const auto path = dir.path() / "w.safetensors";
  EXPECT_TRUE(rc::check("round trip", [&] {
    OwnedTensors tensors;
    const auto count = *rc::gen::inRange(0, 8);
    for (int i = 0; i < count; ++i) {
      const auto dtype = *rc::gen::element(DType::f32, DType::f16, DType::bf16, DType::f8e4m3,
                                           DType::i8, DType::i32, DType::i64);
      const auto shape =
          *rc::gen::resize(3, rc::gen::container<Shape>(rc::gen::inRange<std::int64_t>(0, 6)));
      tensors.add(fmt::format("layer.{}.\"\xC3\xA9\"", i), dtype, shape, i);
    }
    write_safetensors(path, tensors.map(), {{"format", "pt"}});
    const SafetensorsFile file(path);
    RC_ASSERT(file.metadata() == (std::map<std::string, std::string>{{"format", "pt"}}));
    expect_same_tensors(tensors.map(), file.tensors());
    for (const auto& [name, tensor] : file.tensors()) {
      RC_ASSERT(reinterpret_cast<std::uintptr_t>(tensor.data) % dtype_size(tensor.dtype) == 0U);
    }
  }));
}

TEST(Safetensors, StreamsWhatIsNotInMemory) {
  const TempDir dir;
  const std::vector<float> a{1.0F, 2.0F, 3.0F};
  const std::vector<float> b{4.0F, 5.0F};
  const auto bytes = [](const std::vector<float>& x) { return std::as_bytes(std::span(x)); };
  const auto path = [&](const char* name) { return dir.path() / name; };
  write_safetensors(path("whole"),
                    TensorMap{{"a", {DType::f32, {3}, bytes(a).data()}},
                              {"b", {DType::f32, {2}, bytes(b).data()}}},
                    {{"key", "value"}});
  const auto stream = [&](std::size_t of_b) {
    stream_safetensors(path("pieces"),
                       {{"a", {DType::f32, {3}, nullptr}}, {"b", {DType::f32, {2}, nullptr}}},
                       {{"key", "value"}}, [&](const std::string& name, const WriteBytes& write) {
                         if (name == "a") {
                           write(bytes(a).first(4));
                           return write(bytes(a).subspan(4));
                         }
                         write(bytes(b).first(of_b));
                       });
  };
  EXPECT_EQ(error_of([&] { stream(4); }), path("pieces").string() + ": tensor \"b\" lacks 4 bytes");
  EXPECT_FALSE(std::filesystem::exists(path("pieces")));
  stream(8);
  EXPECT_EQ(read_text_file(path("pieces")), read_text_file(path("whole")));
}

TEST(Safetensors, WritesWholeFilesOrNothing) {
  TempDir dir;
  OwnedTensors tensors;
  tensors.add("\xFF", DType::f32, {3});
  dir.write("w", "old");
  EXPECT_THAT(error_of([&] { write_safetensors(dir.path() / "w", tensors.map()); }),
              HasSubstr("not valid UTF-8"));
  EXPECT_EQ(dir.read("w"), "old");
  EXPECT_THAT(error_of([&] { write_safetensors(dir.path() / "no" / "w", TensorMap{}); }),
              HasSubstr("there is no folder"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(Safetensors, MissingFileIsNamed) {
  EXPECT_THAT(error_of([] { const SafetensorsFile file("nowhere/w.safetensors"); }),
              StartsWith("nowhere/w.safetensors: cannot open"));
}

}  // namespace
}  // namespace winnow
