# SPDX-License-Identifier: Apache-2.0
# The loss of each step of one training run, and what it is measured against.
#
#   build/release/bin/train_gpt --stage 3 --precision bf16_mixed --ranks 4 --steps 1500 \
#     --losses losses.tsv
#   gnuplot -e "heldout=...; bigram=...; unigram=..." docs/plots/training_loss.gp
#
# reads losses.tsv and writes training_loss.svg, both in the current folder. The three numbers stand
# in the table that train_gpt prints.
set terminal svg size 760,420 dynamic background rgb "white" font "sans-serif,13"
set output "training_loss.svg"
set xlabel "step"
set ylabel "nats per byte"
set grid ytics linecolor rgb "#dddddd"
set key top right
stats "losses.tsv" using 1 skip 1 nooutput
set xrange [0:STATS_max]
set yrange [0:6]
# The mean of the last 20 steps, as they come.
window = 20
array recent[window]
sum = 0
smoothed(step, loss) = (slot = int(step - 1) % window + 1, \
  sum = sum + loss - (step > window ? recent[slot] : 0), recent[slot] = loss, \
  sum / (step > window ? window : step))
plot "losses.tsv" using 1:2 skip 1 with lines linecolor rgb "#b8cfe5" title "each step", \
  "" using 1:(smoothed($1, $2)) skip 1 with lines linewidth 2 linecolor rgb "#1f5f99" \
    title "mean of 20 steps", \
  unigram with lines dashtype 3 linecolor rgb "#888888" \
    title sprintf("held-out text by byte frequencies, %.3f", unigram), \
  bigram with lines dashtype 2 linecolor rgb "#555555" \
    title sprintf("held-out text by pair frequencies, %.3f", bigram), \
  heldout with lines linewidth 2 linecolor rgb "#b03030" \
    title sprintf("held-out text by the trained model, %.3f", heldout)
