// The output of `bucketwise calibrate` for people.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "calibrate/fit/calibration.h"

namespace bucketwise {
namespace {

std::string segment_text(const std::vector<Segment>& segments) {
    std::string text = fmt::format("  {:<24} {:>21} {:>21}\n", "messages", "latency per step, us",
                                   "bandwidth, GB/s");
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const Segment& segment = segments[i];
        const SegmentErrors errors = segment.errors.value_or(SegmentErrors{});
        text +=
            fmt::format("  {:<24} {:>10.2f} ± {:<8.2f} {:>10.4f} ± {:.4f}\n",
                        segment.up_to ? fmt::format("up to {} bytes", segment.up_to->count)
                                      : std::string(i == 0 ? "all messages" : "larger messages"),
                        to_us(segment.latency), errors.latency_us, to_gb_per_s(segment.bandwidth),
                        errors.bandwidth_gb_per_s);
    }
    return text;
}

std::string host_text(const HostCost& cost) {
    return fmt::format("{:.2f} us (interquartile range {:.0f} %)", to_us(cost.time),
                       100 * cost.spread);
}

// The residuals of the points that the fit follows.
std::string residual_text(const LinkFit& fit) {
    double sum = 0;
    double largest = 0;
    int count = 0;
    for (const LinkResidual& residual : fit.residuals) {
        if (!residual.dropped) {
            sum += std::abs(residual.relative());
            largest = std::max(largest, std::abs(residual.relative()));
            ++count;
        }
    }
    return count == 0 ? ""
                      : fmt::format("  off by {:.1f} % on average, {:.1f} % at most\n",
                                    100 * sum / count, 100 * largest);
}

std::string launch_text(const LinkFit& fit) {
    return fit.launch > Duration{0}
               ? fmt::format("  launch {:.2f} ± {:.2f} us, for any number of ranks\n",
                             to_us(fit.launch), fit.launch_standard_error_us)
               : "";
}

std::string points_text(const LinkFit& fit) {
    std::string text = fmt::format("\n  {:>12} {:>6} {:>8} {:>14} {:>14} {:>9}\n", "bytes", "ranks",
                                   "samples", "measured, us", "fitted, us", "residual");
    for (const LinkResidual& residual : fit.residuals) {
        text += fmt::format("  {:>12} {:>6} {:>8} {:>14.1f} {:>14.1f} {:>7.1f} %{}\n",
                            residual.point.size.count, residual.point.ranks, residual.point.samples,
                            residual.point.median_us, residual.fitted_us, 100 * residual.relative(),
                            residual.dropped ? "  left out" : "");
    }
    return text;
}

std::string link_text(const Calibration& calibration) {
    const LinkParameters& link = calibration.link;
    std::string text = fmt::format("{}: {}, fitted to {} sizes, {} samples\n\n", link.name,
                                   name_of(link.algorithm), calibration.link_fit.residuals.size(),
                                   link.provenance.samples.value_or(0));
    text += segment_text(link.segments) + launch_text(calibration.link_fit);
    if (link.message > Duration{0}) {
        text += fmt::format("  each message takes its sender {:.2f} ± {:.2f} us\n",
                            to_us(link.message), calibration.link_fit.message_standard_error_us);
    }
    if (calibration.host_issue) {
        text +=
            fmt::format("  issuing one takes the host {}\n", host_text(*calibration.host_issue));
    }
    return text + points_text(calibration.link_fit) + residual_text(calibration.link_fit);
}

std::string own_text(const OwnFit& own) {
    const LinkFit& fit = *own.link_fit;
    return fmt::format("\n{}s, by their own steps and bytes\n\n", name_of(own.kind)) +
           segment_text(fit.segments) + launch_text(fit) + points_text(fit) + residual_text(fit);
}

std::string interference_kind(const InterferenceFit& fit) {
    if (fit.ctas) {
        return "by thread blocks, and by size of the message where it matters";
    }
    return fit.segments.size() == 1 ? "the size does not matter" : "by size of the message";
}

std::string apart_text(const SlowdownsApart& apart) {
    std::string text;
    const auto add = [&](const char* of, const std::optional<double>& slowdown) {
        text += slowdown ? fmt::format("  {} {:.3f}", of, *slowdown) : "";
    };
    add("matrix products", apart.products);
    add("other operations", apart.rest);
    return text;
}

std::string slowdown_text(const MeasuredSlowdown& slowdown) {
    return fmt::format("{:.3f} ± {:.3f}", slowdown.factor, slowdown.error);
}

std::string interference_text(CollectiveKind kind, const InterferenceFit& fit) {
    if (fit.points.empty()) {
        return "";
    }
    const std::string_view name = name_of(kind);
    std::string text =
        fmt::format("\n  both at once, times longer than alone ({})\n", interference_kind(fit));
    for (const InterferencePoint& point : fit.points) {
        text += fmt::format("  {:>12} bytes{}  compute {}  {} {}{}\n", point.size.count,
                            point.ctas ? fmt::format("  {:>3} CTAs", *point.ctas) : "",
                            point.compute ? slowdown_text(*point.compute) : "?", name,
                            slowdown_text(point.communication), apart_text(point.apart));
    }
    if (fit.ctas) {
        text += fmt::format("  used: those of collectives of {} CTAs\n", *fit.ctas);
    }
    if (fit.segments.size() == 1) {
        const InterferenceSegment& one = fit.segments.front();
        text += fmt::format(
            "  taken              compute {:.3f} ± {:.3f}  {} {:.3f} ± "
            "{:.3f}\n",
            static_cast<double>(one.slowdown.compute_slowdown_ppm) * 1e-6,
            one.errors->compute_slowdown, name,
            static_cast<double>(one.slowdown.communication_slowdown_ppm) * 1e-6,
            one.errors->communication_slowdown);
    }
    return text;
}

std::string compute_text(const ComputeFit& fit) {
    std::string text = fmt::format(
        "\n  computing, slowest rank, {} rounds: forward {:.2f} ms, backward {:.2f} ms, optimizer "
        "{:.2f} ms\n",
        fit.rounds, to_ms(fit.forward), to_ms(fit.backward), to_ms(fit.optimizer));
    if (fit.launch) {
        text += fmt::format("  launching an operation takes the host {}\n", host_text(*fit.launch));
    }
    if (fit.graph_launch) {
        text += fmt::format("  launching the step as one CUDA graph takes it {}\n",
                            host_text(*fit.graph_launch));
    }
    if (fit.copy_bandwidth) {
        text += fmt::format("  copies of buckets: {:.1f} GB/s\n", to_gb_per_s(*fit.copy_bandwidth));
    }
    return text + fmt::format(
                      "  varies by (standard deviation): a step's computing {:.1f} %, each "
                      "operation {:.1f} %, each all-reduce {:.1f} %\n",
                      100 * fit.variation.compute_spread, 100 * fit.variation.operation_spread,
                      100 * fit.variation.collective_spread);
}

std::string device_text(const DeviceFit& fit) {
    double tflop_per_s = 0;
    for (const double peak : fit.device.peak_tflop_per_s) {
        tflop_per_s = std::max(tflop_per_s, peak);
    }
    return fmt::format(
        "  device: {:.4g} Tflop/s ± {:.1f} % ({} operations), {:.4g} GB/s ± {:.1f} % ({}), launch "
        "{:.2f} us; typically {:.0f} % off for a single operation\n",
        tflop_per_s, 100 * fit.compute_error, fit.compute_bound,
        to_gb_per_s(fit.device.memory_bandwidth), 100 * fit.memory_error, fit.memory_bound,
        to_us(fit.device.launch), 100 * fit.typical_residual);
}

}  // namespace

std::string calibration_report(const Calibration& calibration) {
    std::string text = link_text(calibration) +
                       interference_text(CollectiveKind::all_reduce, calibration.interference);
    for (const OwnFit& own : calibration.own) {
        text += (own.link_fit ? own_text(own) : "") + interference_text(own.kind, own.interference);
    }
    text += calibration.compute ? compute_text(*calibration.compute) : "";
    text += calibration.device ? device_text(*calibration.device) : "";
    for (const std::string& warning : calibration.warnings) {
        text += fmt::format("  Note: {}.\n", warning);
    }
    return text;
}

}  // namespace bucketwise
