// Messages of protocol buffers, as protoc's code writes them: written here apart from what reads
// them, from the description of the wire format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bucketwise {

inline std::string written_number(std::uint64_t value) {
    std::string bytes;
    do {
        const auto low = static_cast<unsigned char>(value % 128);
        value /= 128;
        bytes += static_cast<char>(low + (value > 0 ? 128 : 0));
    } while (value > 0);
    return bytes;
}

class WrittenMessage {
  public:
    WrittenMessage& number(std::uint64_t field, std::uint64_t value) {
        bytes_ += written_number(field * 8) + written_number(value);
        return *this;
    }
    WrittenMessage& text(std::uint64_t field, const std::string& value) {
        bytes_ += written_number(field * 8 + 2) + written_number(value.size()) + value;
        return *this;
    }
    WrittenMessage& packed(std::uint64_t field, const std::vector<std::uint64_t>& values) {
        std::string all;
        for (const std::uint64_t value : values) {
            all += written_number(value);
        }
        return text(field, all);
    }
    WrittenMessage& fixed(std::uint64_t field, const std::string& bytes) {
        bytes_ += written_number(field * 8 + (bytes.size() == 8 ? 1 : 5)) + bytes;
        return *this;
    }

    [[nodiscard]] const std::string& bytes() const { return bytes_; }
    // With its length before it, as a trace holds it.
    [[nodiscard]] std::string delimited() const { return written_number(bytes_.size()) + bytes_; }

  private:
    std::string bytes_;
};

// Fields of Chakra's messages.
constexpr std::uint32_t node_id = 1;
constexpr std::uint32_t node_control_dependencies = 4;
constexpr std::uint32_t node_name = 2;
constexpr std::uint32_t node_type = 3;
constexpr std::uint32_t node_data_dependencies = 5;
constexpr std::uint32_t node_duration = 7;
constexpr std::uint32_t node_attribute = 10;

inline WrittenMessage written_attribute(const std::string& name, std::uint64_t int64_value) {
    return WrittenMessage().text(1, name).number(9, int64_value);
}

inline WrittenMessage written_compute(std::uint64_t id, std::uint64_t duration_us,
                                      const std::vector<std::uint64_t>& after = {}) {
    WrittenMessage node;
    node.number(node_id, id).text(node_name, "compute").number(node_type, 4);
    return node.packed(node_data_dependencies, after).number(node_duration, duration_us);
}

inline WrittenMessage written_collective(std::uint64_t id, std::uint64_t type, std::uint64_t bytes,
                                         const std::vector<std::uint64_t>& after = {}) {
    WrittenMessage node;
    node.number(node_id, id).text(node_name, "collective").number(node_type, 7);
    node.packed(node_data_dependencies, after);
    node.text(node_attribute, written_attribute("comm_type", type).bytes());
    node.text(node_attribute, written_attribute("comm_size", bytes).bytes());
    return node.text(node_attribute, WrittenMessage().text(1, "pg_name").text(29, "0").bytes());
}

inline std::string written_metadata() {
    return WrittenMessage().text(1, "0.0.4").delimited();
}

}  // namespace bucketwise
