# beats.pl FILE LABEL [MILLISECONDS]: this process and a child of it write the monotonic time to FILE every millisecond,
# for so long or until they are killed. Perl starts in a few milliseconds, so an early start of the next holder is seen.
use strict;
use warnings;
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

my ($file, $label, $ms) = @ARGV;
$SIG{$_} = 'IGNORE' for qw(TERM INT HUP);
open(my $out, '>>', $file) or die $!;
sub beat { syswrite($out, sprintf("%s %d %.4f\n", $label, $$, clock_gettime(CLOCK_MONOTONIC) * 1000)); }
beat();
my $child = fork() // die $!;
my $end = defined $ms ? clock_gettime(CLOCK_MONOTONIC) + $ms / 1000 : 9**99;
while (clock_gettime(CLOCK_MONOTONIC) < $end) { beat(); usleep(1000); }
waitpid($child, 0) if $child;
